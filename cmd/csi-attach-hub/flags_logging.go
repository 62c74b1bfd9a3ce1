package main

import (
	"fmt"

	logsapi "k8s.io/component-base/logs/api/v1"
)

// maxVerbosity is the highest verbosity of the log. From 8 on, client-go logs the bodies of requests and answers: Secrets,
// publish contexts. The hub logs nothing above 5.
const maxVerbosity = 7

// limitVerbosity lowers the verbosities of the whole program and of single files to maxVerbosity. It returns a warning
// for each flag with a higher one.
func limitVerbosity(c *logsapi.LoggingConfiguration) (warnings []string) {
	limit := func(flag string, v *logsapi.VerbosityLevel) {
		if *v > maxVerbosity {
			warnings = append(warnings, fmt.Sprintf("%s=%d is taken as %d: above it, requests to the Kubernetes API would be logged with the Secrets and tokens in them", flag, *v, maxVerbosity))
			*v = maxVerbosity
		}
	}
	limit("--v", &c.Verbosity)
	for i := range c.VModule {
		limit("--vmodule "+c.VModule[i].FilePattern, &c.VModule[i].Verbosity)
	}
	return warnings
}

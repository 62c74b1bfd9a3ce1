package registry

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"sort"
	"strings"

	"gopkg.in/yaml.v3"
)

// yamlPosition is how package yaml begins its errors. It counts the lines from 0
// in some, and means where the surrounding mapping begins in others.
var yamlPosition = regexp.MustCompile(`^yaml: (line \d+: )?`)

// syntax reports the error that package yaml found in a file.
func (p *parser) syntax(data []byte, err error) {
	problem := yamlProblem(err)
	lines := bytes.SplitAfter(data, []byte("\n"))
	// The line is the one from which on the beginning of the file has this problem.
	line := sort.Search(len(lines), func(last int) bool {
		return yamlProblem(yamlError(bytes.Join(lines[:last+1], nil))) == problem
	})
	hint := ""
	if line < len(lines) && strings.HasPrefix(strings.TrimLeft(string(lines[line]), " "), "\t") {
		hint = " (indent with spaces, not with tabs)"
	}
	p.report(min(line, len(lines)-1)+1, "", "this is no YAML: "+problem+hint)
}

// yamlProblem is the message of an error of package yaml without its position.
func yamlProblem(err error) string {
	if err == nil {
		return ""
	}
	return yamlPosition.ReplaceAllString(err.Error(), "")
}

// yamlError returns the error that package yaml finds in a file.
func yamlError(data []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var document yaml.Node
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

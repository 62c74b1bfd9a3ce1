package adopt

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// driverNameForm is that of the CSI specification: a domain name in any case.
var driverNameForm = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9.]{0,61}[A-Za-z0-9])?$`)

// socketForm has the characters that mean the same in a file's name, in a URL and in the text of drivers.yaml.
var socketForm = regexp.MustCompile(`^/[-A-Za-z0-9/._@+=,:~]+$`)

// Check returns an error with every name that no Kubernetes object can have. Names become parts of paths, commands and
// objects: nothing may be printed of plans that fail.
func Check(plans []Plan) error {
	var problems []error
	for _, p := range plans {
		bad := func(what, value string, reasons []string) {
			if len(reasons) > 0 {
				problems = append(problems, fmt.Errorf("%s: %s %q: %s", p.Attacher, what, value, reasons[0]))
			}
		}
		bad("metadata.name", p.Workload.GetName(), validation.IsDNS1123Subdomain(p.Workload.GetName()))
		bad("namespace", p.Workload.Namespace, validation.IsDNS1123Label(p.Workload.Namespace))
		bad("namespace of the Lease", p.LeaseNamespace(), validation.IsDNS1123Label(p.LeaseNamespace()))
		if account := p.Workload.Template.Spec.ServiceAccountName; account != "" {
			bad("serviceAccountName", account, validation.IsDNS1123Subdomain(account))
		}
		bad("container name", p.Container.Name, validation.IsDNS1123Label(p.Container.Name))
		for _, s := range p.Secrets {
			bad("namespace of a Secret", s.Namespace, validation.IsDNS1123Label(s.Namespace))
			bad("name of a Secret", s.Name, validation.IsDNS1123Subdomain(s.Name))
		}
		if p.Adoptable() && p.deployer == "" && !socketForm.MatchString(p.Socket.Path) {
			bad("socket of --csi-address", p.Socket.Path, []string{"not a path of letters, digits and the characters '/', '.', '_', '-', '@', '+', '=', ',', ':' and '~'"})
		}
		needed := p.Driver != "" || p.Options.Mode != ModeDropIn // a drop-in asks the driver for its name
		if p.Adoptable() && needed && !driverNameForm.MatchString(p.Driver) {
			bad("driver name", p.Driver, []string{"not a domain name of at most 63 letters, digits, '-' and '.'"})
		}
	}
	return errors.Join(problems...)
}

// Refusals returns an error with the reasons of all plans that cannot be adopted, nil if all can.
func Refusals(plans []Plan) error {
	var problems []error
	for _, p := range plans {
		if !p.Adoptable() {
			problems = append(problems, fmt.Errorf("%s: %s", p.Attacher, strings.Join(p.No, "; ")))
		}
	}
	return errors.Join(problems...)
}

package explain

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// failedWebhook is the name of a webhook in the API server's words for one that it cannot call.
var failedWebhook = regexp.MustCompile(`failed calling webhook "([^"]+)"`)

// webhookConfiguration is a ValidatingWebhookConfiguration or a MutatingWebhookConfiguration.
type webhookConfiguration struct {
	Kind              string `json:"-"`
	metav1.ObjectMeta `json:"metadata"`
	Webhooks          []struct {
		Name string `json:"name"`
	} `json:"webhooks"`
}

var webhookKinds = []struct{ kind, resource string }{
	{"ValidatingWebhookConfiguration", "validatingwebhookconfigurations"},
	{"MutatingWebhookConfiguration", "mutatingwebhookconfigurations"},
}

// webhooks reads all webhook configurations. It reads JSON: the types of their group would make the program larger.
func (g *gatherer) webhooks(ctx context.Context) Object[[]webhookConfiguration] {
	return once(g, "webhook configurations", func() Object[[]webhookConfiguration] {
		all := []webhookConfiguration{}
		for _, k := range webhookKinds {
			var list struct {
				Items []webhookConfiguration `json:"items"`
			}
			body, err := g.Kube.CoreV1().RESTClient().Get().AbsPath("/apis/admissionregistration.k8s.io/v1/"+k.resource).SetHeader("Accept", "application/json").Do(ctx).Raw()
			if err == nil {
				err = json.Unmarshal(body, &list)
			}
			if err != nil {
				return Unreadable[[]webhookConfiguration](fmt.Errorf("list %s: %w", k.resource, err))
			}
			for _, c := range list.Items {
				c.Kind = k.kind
				all = append(all, c)
			}
		}
		return Present(&all)
	})
}

// ignoreWebhook cures a webhook that cannot be called: the API server no longer insists on its answer. Its place in the
// configuration is tested by its name: it may have moved since it was read.
func (w *walk) ignoreWebhook(f *Finding) {
	name := failedWebhook.FindStringSubmatch(f.Fact)
	if name == nil {
		return
	}
	var lines [][]string
	for _, c := range items(w.Webhooks) {
		for i, hook := range c.Webhooks {
			if hook.Name != name[1] {
				continue
			}
			patch, err := json.Marshal([]map[string]string{
				{"op": "test", "path": fmt.Sprintf("/webhooks/%d/name", i), "value": hook.Name},
				{"op": "replace", "path": fmt.Sprintf("/webhooks/%d/failurePolicy", i), "value": "Ignore"},
			})
			if err != nil {
				return
			}
			f.Object = ref(Kind(c.Kind), "", c.Name)
			lines = append(lines, []string{"kubectl", "patch", webhookResource(c.Kind), c.Name, "--type=json", "-p", string(patch)})
		}
	}
	if len(lines) != 1 { // which of several fails is not known
		f.Object = w.attachmentRef()
		return
	}
	f.Next += " Until then, the command has the API server accept writes without its answer. Set failurePolicy back to Fail afterwards."
	f.Commands = diagnosis.Commands(lines...)
}

// webhookResource returns the resource of a kind in webhookKinds.
func webhookResource(kind string) string {
	for _, k := range webhookKinds {
		if k.kind == kind {
			return k.resource
		}
	}
	return ""
}

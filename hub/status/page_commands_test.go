package status

import (
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
)

// A reader copies them from there.
func TestAPageShowsTheCommandsOfADiagnosisAsTheyAre(t *testing.T) {
	_, _, body := get(t, startServer(t, newTroubledHub(time.Now()))+"/drivers/"+troubled.left)
	var blocks []string
	for _, n := range elements(t, body) {
		if n.Type == html.ElementNode && attribute(n, "class") == "commands" {
			blocks = append(blocks, strings.TrimSuffix(n.FirstChild.Data, "\n"))
		}
	}
	if want := "csi-attach-hub explain driver/" + troubled.left; !slices.Contains(blocks, want) {
		t.Errorf("the page has the commands %q, want %q", blocks, want)
	}
}

package testbed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// CSIAttacherEnv names the environment variable with the path of a csi-attacher that tests run
// instead of the one that internal/test/world/csiattacher pins.
const CSIAttacherEnv = "CSI_ATTACHER"

// proxyTimeout is how long a Go module proxy may take to answer.
const proxyTimeout = 10 * time.Second

// credentialsInURL are those of the URLs of a GOPROXY, with the slashes before them.
var credentialsInURL = regexp.MustCompile(`//[^/,|]*@`)

// CSIAttacher returns the path of a csi-attacher: the one that CSIAttacherEnv names, else the one
// that internal/test/world/csiattacher pins, which it builds if need be. It skips the test if that cannot
// be built. In CI (CI is set) it fails the test instead, unless no Go module proxy answers.
func CSIAttacher(tb testing.TB) string {
	tb.Helper()
	if path := os.Getenv(CSIAttacherEnv); path != "" {
		return path
	}
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	path, err := CSIAttacherBinary(ctx, os.Stderr) // tb.Log would stay silent for minutes
	if err == nil {
		return path
	}
	if os.Getenv("CI") == "" {
		tb.Skipf("no csi-attacher: %v", err)
	}
	proxies, asked := exec.CommandContext(ctx, "go", "env", "GOPROXY").Output()
	if asked != nil {
		tb.Fatalf("ask go for GOPROXY: %v", asked)
	}
	unreachable := proxyUnreachable(ctx, strings.TrimSpace(string(proxies)))
	if unreachable == nil {
		tb.Fatalf("the Go module proxy answers, and csi-attacher cannot be built: %v", err)
	}
	if list := os.Getenv("NOT_CHECKED"); list != "" { // .ci/run prints it
		if err := os.WriteFile(list, []byte("the tests with the real csi-attacher, "), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	tb.Skipf("no csi-attacher: %v: %v", unreachable, err)
	return ""
}

// proxyUnreachable returns why none of the proxies of a GOPROXY answers, nil if one does. Any
// answer counts: a proxy that does not have the module must not hide that the version is wrong.
// So the requests, and the error, leave out the credentials of the URLs. "direct" is no proxy: what it leads to is not asked.
func proxyUnreachable(ctx context.Context, proxies string) error {
	module, _, _ := strings.Cut(csiAttacher, "/cmd/")
	proxies = credentialsInURL.ReplaceAllString(proxies, "//")
	failed := fmt.Errorf("no Go module proxy of %q answers", proxies)
	for _, proxy := range strings.FieldsFunc(proxies, func(r rune) bool { return r == ',' || r == '|' }) {
		if proxy == "direct" || proxy == "off" {
			continue
		}
		if !strings.HasPrefix(proxy, "http") {
			return nil // a folder
		}
		ctx, cancel := context.WithTimeout(ctx, proxyTimeout)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(proxy, "/")+"/"+module+"/@v/list", nil)
		if err != nil {
			return nil // the go command says what is wrong with it
		}
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			response.Body.Close()
			return nil
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

package access_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/internal/access"
)

// cluster answers reviews as an API server. Tokens that begin with "good" are valid, and their users may get all paths.
type cluster struct {
	slow time.Duration // how long the review of another token takes

	mu            sync.Mutex
	tokens, paths int // reviews so far
	now, most     int // reviews at once
}

// RoundTrip implements http.RoundTripper.
func (c *cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var answer any
	took := 5 * time.Millisecond
	c.mu.Lock()
	c.now++
	c.most = max(c.most, c.now)
	if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
		c.tokens++
		var review authenticationv1.TokenReview
		if err = json.Unmarshal(body, &review); err == nil && strings.HasPrefix(review.Spec.Token, "good") {
			review.Status.Authenticated, review.Status.User.Username = true, review.Spec.Token
		} else {
			review.Status.Error, took = "invalid bearer token", took+c.slow
		}
		answer = review
	} else {
		c.paths++
		var review authorizationv1.SubjectAccessReview
		err = json.Unmarshal(body, &review)
		review.Status.Allowed = true
		answer = review
	}
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	time.Sleep(took)
	c.mu.Lock()
	c.now--
	c.mu.Unlock()
	body, err = json.Marshal(answer)
	return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(string(body))), Request: r}, err
}

// guarded returns a handler behind a Guard that asks the cluster.
func guarded(t *testing.T, c *cluster) http.Handler {
	t.Helper()
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: "http://api", Transport: c, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	guard := access.New(kube.AuthenticationV1(), kube.AuthorizationV1())
	return guard.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
}

// get requests a path with a token from an address.
func get(handler http.Handler, path, token, address string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.RemoteAddr = address + ":1234"
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

func TestFloodOfMadeUpTokensMakesFewReviewsAndScrapesGetThrough(t *testing.T) {
	for _, test := range []struct {
		name    string
		slow    time.Duration // the review of a made-up token
		senders int
		seconds int
		most    int // reviews
	}{
		{"one sender", 0, 1, 60, 200},
		{"one sender, slow reviews", 3 * time.Second, 1, 15, 200},
		{"many senders", 0, 100, 15, 300},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &cluster{slow: test.slow}
				handler := guarded(t, c)
				scrape := func(token string) {
					if w := get(handler, "/metrics", token, "10.0.0.1"); w.Code != http.StatusOK {
						t.Errorf("the scrape at %s gets %d %s", time.Now().Format(time.TimeOnly), w.Code, w.Body)
					}
				}
				scrape("good-0")
				time.Sleep(50 * time.Second) // the answer expires during the flood
				var flood, scraper sync.WaitGroup
				var mu sync.Mutex
				answers := map[int]int{}
				scraper.Go(func() {
					for i := range test.seconds / 3 {
						time.Sleep(3 * time.Second)
						token := "good-0"
						if i >= 4 && test.senders == 1 {
							token = "good-1" // the token was renewed meanwhile
						}
						scrape(token)
					}
				})
				for i := range test.seconds * 1000 {
					time.Sleep(time.Millisecond)
					flood.Go(func() {
						w := get(handler, "/metrics", fmt.Sprint("bad-", i), fmt.Sprint("10.0.1.", i%test.senders))
						mu.Lock()
						answers[w.Code]++
						mu.Unlock()
						if w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") == "" {
							t.Error("an answer 429 does not say when to try again")
						}
					})
				}
				flood.Wait()
				scraper.Wait()
				time.Sleep(time.Minute) // reviews end later than the requests that gave up waiting
				c.mu.Lock()
				defer c.mu.Unlock()
				if refused := answers[http.StatusUnauthorized] + answers[http.StatusTooManyRequests] + answers[http.StatusServiceUnavailable]; refused != test.seconds*1000 {
					t.Errorf("%d requests were refused, want all: %v", refused, answers)
				}
				if c.tokens > test.most || c.most > 4 {
					t.Errorf("%d reviews of tokens, %d at once, want at most %d and 4", c.tokens, c.most, test.most)
				}
			})
		})
	}
}

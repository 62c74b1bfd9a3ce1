package access_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestTokenThatIsRefusedIsReviewedOnceInTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{}
		handler := guarded(t, c)
		for range 30 {
			if w := get(handler, "/metrics", "bad", "10.0.0.1"); w.Code != http.StatusUnauthorized {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
			time.Sleep(time.Second)
		}
		if c.tokens != 3 {
			t.Errorf("%d reviews in 30 seconds, want 3", c.tokens)
		}
	})
}

func TestTokenThatIsTooLongIsRefusedWithoutReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{}
		if w := get(guarded(t, c), "/metrics", "good"+strings.Repeat("x", 16<<10), "10.0.0.1"); w.Code != http.StatusUnauthorized || c.tokens > 0 {
			t.Errorf("got %d %s, %d reviews", w.Code, w.Body, c.tokens)
		}
	})
}

func TestRequestsAtOnceWithOneTokenShareItsReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{}
		handler := guarded(t, c)
		var requests sync.WaitGroup
		for range 100 {
			requests.Go(func() {
				if w := get(handler, "/metrics", "good", "10.0.0.1"); w.Code != http.StatusOK {
					t.Errorf("got %d %s", w.Code, w.Body)
				}
			})
		}
		requests.Wait()
		if c.tokens != 1 || c.paths != 1 {
			t.Errorf("%d reviews of the token, %d of the path, want one each", c.tokens, c.paths)
		}
	})
}

func TestUserWhoRequestsManyPathsIsBoundedAndOthersAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{}
		handler := guarded(t, c)
		answers := map[int]int{}
		for i := range 60 * 100 {
			answers[get(handler, fmt.Sprint("/drivers/", i), "good-many", "10.0.0.1").Code]++
			if i%600 == 0 {
				if w := get(handler, fmt.Sprint("/attachments/", i), "good-other", "10.0.0.1"); w.Code != http.StatusOK {
					t.Errorf("the other user gets %d %s", w.Code, w.Body)
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		if answers[http.StatusTooManyRequests] == 0 || answers[http.StatusOK]+answers[http.StatusTooManyRequests] != 60*100 || c.paths > 1000 {
			t.Errorf("%v with %d reviews of paths, want at most 1000", answers, c.paths)
		}
	})
}

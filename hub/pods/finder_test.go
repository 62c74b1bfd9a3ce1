package pods

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNoRequestIsMadeWhileNobodyAsks(t *testing.T) {
	inBubble(t, func(t *testing.T, c *fakeCluster, f *Finder, _ func() string) {
		time.Sleep(time.Hour)
		f.PodsOf("n", "shop", "data")
		time.Sleep(time.Hour)
		if n := c.count(); n != 1 {
			t.Errorf("%d requests for one question in two hours, want 1", n)
		}
	})
}

func TestPodsThatUseAClaimOnANodeAreFound(t *testing.T) {
	inBubble(t, func(t *testing.T, c *fakeCluster, f *Finder, _ func() string) {
		c.add("n", "shop", "web-1", "logs", "data")
		c.add("n", "shop", "web-0", "data", "data")
		c.add("n", "bank", "web-0", "data")
		c.add("m", "shop", "web-2", "data")
		c.add("n", "shop", "done", "data")
		c.add("n", "shop", "failed", "data")
		c.add("n", "shop", "job")
		c.change(func() {
			all := c.pods["n"]
			all[3].Status.Phase, all[4].Status.Phase = corev1.PodSucceeded, corev1.PodFailed
			all[5].Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
		})
		if got := f.PodsOf("n", "shop", "data"); got != nil {
			t.Errorf("before the first listing: %v", got)
		}
		for claim, want := range map[string][]string{"data": {"shop/web-0", "shop/web-1"}, "logs": {"shop/web-1"}, "job-scratch": {"shop/job"}, "none": nil} {
			if diff := cmp.Diff(want, ask(f, "n", "shop", claim)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", claim, diff)
			}
		}
		if n := c.count(); n != 1 {
			t.Errorf("%d requests for one node, want 1", n)
		}
		want := metav1.ListOptions{FieldSelector: "spec.nodeName=n", ResourceVersion: "0", Limit: pageSize}
		if diff := cmp.Diff(want, c.seen()[0].options); diff != "" {
			t.Errorf("the request is not one that the watch cache answers (-want +got):\n%s", diff)
		}
		if got := ask(f, "", "shop", "data"); got != nil || c.count() != 1 {
			t.Errorf("no node: %v, after %d requests", got, c.count())
		}
	})
}

func TestManyPodsOfAClaimAndManyClaimsAreCutShort(t *testing.T) {
	inBubble(t, func(t *testing.T, c *fakeCluster, f *Finder, _ func() string) {
		for i := range maxClaims {
			c.add("n", "shop", fmt.Sprintf("web-%04d", maxClaims-i), "data", fmt.Sprint("own-", i))
		}
		want := []string{"shop/web-0001", "shop/web-0002", "shop/web-0003", "shop/web-0004", "shop/web-0005"}
		if diff := cmp.Diff(want, ask(f, "n", "shop", "data")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if n := len(f.nodes["n"].pods); n != maxClaims {
			t.Errorf("%d claims are kept, want %d", n, maxClaims)
		}
	})
}

func TestAnAnswerInPagesIsReadToItsEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, c *fakeCluster, f *Finder, _ func() string) {
		c.pageSize = 1
		for i := range maxPages + 1 {
			c.add("n", "shop", fmt.Sprint("web-", i), "data")
		}
		if got := len(ask(f, "n", "shop", "data")); got != maxPages || c.count() != maxPages {
			t.Errorf("%d Pods of %d pages, want %d", got, c.count(), maxPages)
		}
	})
}

func TestAPageThatIsOpenAllTheTimeCostsARequestEvery15Seconds(t *testing.T) {
	inBubble(t, func(t *testing.T, c *fakeCluster, f *Finder, _ func() string) {
		for range 60 {
			f.PodsOf("n", "shop", "data")
			time.Sleep(time.Second)
		}
		if n := c.count(); n != 4 {
			t.Errorf("%d requests in a minute, want 4", n)
		}
		c.add("n", "shop", "web-0", "data")
		time.Sleep(refreshAfter)
		if got := ask(f, "n", "shop", "data"); len(got) != 1 {
			t.Errorf("a new Pod is not found: %v", got)
		}
	})
}

func TestManyNodesAreListedAtTwoRequestsPerSecond(t *testing.T) {
	inBubble(t, func(t *testing.T, c *fakeCluster, f *Finder, _ func() string) {
		began := time.Now()
		for i := range 100 {
			f.PodsOf(fmt.Sprint("n", i), "shop", "data")
		}
		time.Sleep(time.Minute)
		if n := c.count(); n != 100 {
			t.Fatalf("%d requests, want one for each of 100 nodes", n)
		}
		for i, r := range c.seen() {
			if took := r.at.Sub(began); i >= requestsBurst && took < time.Duration(i-requestsBurst)*time.Second/requestsPerSecond {
				t.Errorf("request %d after %v", i, took)
			}
		}
	})
}

func TestTheOldestAnswerIsRefreshedFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, c *fakeCluster, f *Finder, _ func() string) {
		for i := range 50 { // more than are listed in 15 s
			f.PodsOf(fmt.Sprint("n", i), "shop", "data")
		}
		for range 120 {
			time.Sleep(time.Second)
			for i := range 50 {
				f.PodsOf(fmt.Sprint("n", i), "shop", "data")
			}
		}
		times := map[string]int{}
		for _, r := range c.seen() {
			times[r.options.FieldSelector]++
		}
		for node, n := range times {
			if n < 4 || n > 6 {
				t.Errorf("%s was listed %d times in 2 minutes of 250 requests for 50 nodes", node, n)
			}
		}
		if len(times) != 50 {
			t.Errorf("%d nodes were listed, want 50", len(times))
		}
	})
}

func TestARefusalEndsTheRequestsForFiveMinutes(t *testing.T) {
	inBubble(t, func(t *testing.T, c *fakeCluster, f *Finder, log func() string) {
		c.add("n", "shop", "web-0", "data")
		if got := ask(f, "n", "shop", "data"); len(got) != 1 || !f.Allowed() {
			t.Fatalf("found %v, allowed %v", got, f.Allowed())
		}
		c.change(func() { c.refuses, c.requests = true, nil })
		time.Sleep(refreshAfter)
		for range 3 * 300 {
			f.PodsOf("n", "shop", "data")
			f.PodsOf("m", "shop", "data")
			time.Sleep(time.Second)
		}
		if n := c.count(); n != 3 {
			t.Errorf("%d requests in a quarter of an hour, want 3", n)
		}
		if got := f.PodsOf("n", "shop", "data"); got != nil || f.Allowed() {
			t.Errorf("refused: found %v, allowed %v", got, f.Allowed())
		}
		if n := strings.Count(log(), "\n"); n != 1 || !strings.Contains(log(), "pods.list") {
			t.Errorf("want one line that names the manifest:\n%s", log())
		}
		c.change(func() { c.refuses = false })
		time.Sleep(retryRefused)
		if got := ask(f, "n", "shop", "data"); len(got) != 1 || !f.Allowed() || !strings.Contains(log(), "Can list Pods now") {
			t.Errorf("granted: found %v, allowed %v:\n%s", got, f.Allowed(), log())
		}
	})
}

func TestAFailureKeepsWhatIsKnownForFiveMinutes(t *testing.T) {
	inBubble(t, func(t *testing.T, c *fakeCluster, f *Finder, log func() string) {
		c.add("n", "shop", "web-0", "data")
		ask(f, "n", "shop", "data")
		c.change(func() { c.fails, c.requests = true, nil })
		for range 299 {
			time.Sleep(time.Second)
			if got := ask(f, "n", "shop", "data"); len(got) != 1 {
				t.Fatalf("lost after a failure: %v", got)
			}
		}
		time.Sleep(2 * time.Second)
		if got := ask(f, "n", "shop", "data"); got != nil {
			t.Errorf("shown after five minutes without a listing: %v", got)
		}
		if n := c.count(); n > 21 || !f.Allowed() || log() != "" {
			t.Errorf("%d requests in five minutes, allowed %v, logged %q", n, f.Allowed(), log())
		}
	})
}

func TestAnAPIServerThatHangsBlocksNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, c *fakeCluster, f *Finder, _ func() string) {
		c.add("n", "shop", "web-0", "data")
		c.change(func() { c.hangs = true })
		began := time.Now()
		ask(f, "n", "shop", "data")
		ask(f, "m", "shop", "data")
		if took := time.Since(began); took != 0 {
			t.Errorf("PodsOf took %v", took)
		}
		c.change(func() { c.hangs = false })
		time.Sleep(2*listTimeout + refreshAfter)
		if got := ask(f, "n", "shop", "data"); len(got) != 1 {
			t.Errorf("not found after the API server has come back: %v", got)
		}
	})
}

func TestNodesThatNobodyAsksForAreDropped(t *testing.T) {
	inBubble(t, func(t *testing.T, c *fakeCluster, f *Finder, _ func() string) {
		f.PodsOf("n", "shop", "data")
		time.Sleep(2*keepFor + time.Second)
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.nodes) != 0 {
			t.Errorf("%d nodes are kept", len(f.nodes))
		}
	})
}

func TestNodesAreBoundedAndThoseThatAreLookedAtStay(t *testing.T) {
	inBubble(t, func(t *testing.T, c *fakeCluster, f *Finder, _ func() string) {
		c.add("late", "shop", "web-0", "data")
		for i := range maxNodes {
			f.PodsOf(fmt.Sprint("n", i), "shop", "data")
		}
		if got := ask(f, "late", "shop", "data"); got != nil {
			t.Errorf("a node too many is listed: %v", got)
		}
		time.Sleep(refreshAfter)
		for i := 1; i < maxNodes; i++ { // not n0
			f.PodsOf(fmt.Sprint("n", i), "shop", "data")
		}
		f.PodsOf("late", "shop", "data")
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.nodes) != maxNodes || f.nodes["n0"] != nil || f.nodes["late"] == nil {
			t.Errorf("%d nodes, n0 kept %v, late kept %v", len(f.nodes), f.nodes["n0"] != nil, f.nodes["late"] != nil)
		}
	})
}

func TestManyAskAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, c *fakeCluster, f *Finder, _ func() string) {
		for i := range 5 {
			c.add(fmt.Sprint("n", i), "shop", "web-0", "data")
		}
		var asking sync.WaitGroup
		for range 8 {
			asking.Go(func() {
				for i := range 100 {
					pods := f.PodsOf(fmt.Sprint("n", i%5), "shop", "data")
					slices.Reverse(pods) // the caller's own
					if len(pods) > 0 {
						pods[0] = ""
					}
					f.Allowed()
					time.Sleep(time.Second)
				}
			})
		}
		asking.Wait()
		synctest.Wait()
		if got := f.PodsOf("n0", "shop", "data"); !slices.Equal(got, []string{"shop/web-0"}) {
			t.Errorf("got %v", got)
		}
	})
}

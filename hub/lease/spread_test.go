package lease

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A hub that starts acquires all its leases at once. It must not renew them at once ever after.
func TestLeasesThatWereAcquiredTogetherAreRenewedOneAfterTheOther(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		w.drivers = drivers(200)
		w.start("a")
		time.Sleep(time.Minute)
		leases, err := w.kube.CoordinationV1().Leases("hub").List(t.Context(), metav1.ListOptions{})
		must(t, err)
		const period, parts, least = 5 * time.Second, 5, 10 // 40 of 200 are expected in each part
		now, counts := time.Now(), [parts]int{}
		for _, l := range leases.Items {
			if isAnnouncement(&l) {
				continue
			}
			age := now.Sub(l.Spec.RenewTime.Time)
			if age > period {
				t.Errorf("%s was renewed %v ago, longer than a retry period", l.Name, age)
				continue
			}
			counts[min(parts-1, age*parts/period)]++
		}
		for i, n := range counts {
			if n < least {
				t.Errorf("part %d of the retry period has %d renewals, want at least %d of %d: %v", i+1, n, least, len(w.drivers), counts)
			}
		}
	})
}

func TestFirstRenewalIsAtASlotWithinTheRetryPeriod(t *testing.T) {
	now, period := time.Unix(1_000_000, 123456789), 5*time.Second
	for range 1000 {
		d := firstRenewal(now, period)
		if at := now.Add(d); d <= 0 || d > period || !at.Equal(at.Truncate(period/renewalSlots)) {
			t.Fatalf("first renewal after %v, at %v", d, at)
		}
	}
}

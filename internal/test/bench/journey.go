package main

import (
	"slices"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/statistics"
)

// leg is a part of the way from a Pod to node.status.volumesAttached, from one moment to the next.
type leg int

const (
	requestLeg  leg = iota // kube-controller-manager creates the VolumeAttachment
	dispatchLeg            // the attacher calls the driver
	publishLeg             // the driver attaches, and the attacher writes the status
	reportLeg              // kube-controller-manager notices the status and writes node.status
	legs                   // how many there are
)

// legNames are the names of the legs in charts.
var legNames = [legs]string{
	"kube-controller-manager: VolumeAttachment", "attacher: call", "driver and attacher: attached", "kube-controller-manager: node.status",
}

// journey is how long each leg of one volume took.
type journey [legs]time.Duration

// journeyOf returns the journey between moments. Different watches see the moments, some late: a moment counts as not
// earlier than the one before it, so that the legs add up to the whole way.
func journeyOf(at [attachMoments]time.Time) journey {
	var j journey
	for i := range legs {
		if at[i+1].Before(at[i]) {
			at[i+1] = at[i]
		}
		j[i] = at[i+1].Sub(at[i])
	}
	return j
}

func (j journey) whole() time.Duration {
	var sum time.Duration
	for _, one := range j {
		sum += one
	}
	return sum
}

// journeys are those of all volumes of a burst.
type journeys []journey

// percentile returns a percentile, in seconds, of what part returns of each.
func (all journeys) percentile(p float64, part func(journey) time.Duration) float64 {
	var took []time.Duration
	for _, j := range all {
		took = append(took, part(j))
	}
	slices.Sort(took)
	return statistics.Percentile(took, p).Seconds()
}

// mean returns the mean of a leg in seconds. Unlike medians, the means of all legs add up to that of the whole way.
func (all journeys) mean(l leg) float64 {
	var sum time.Duration
	for _, j := range all {
		sum += j[l]
	}
	return sum.Seconds() / float64(len(all))
}

// managerShare returns the share of kube-controller-manager in the whole time of all volumes.
func (all journeys) managerShare() float64 {
	var own, whole time.Duration
	for _, j := range all {
		own += j[requestLeg] + j[reportLeg]
		whole += j.whole()
	}
	return float64(own) / float64(whole)
}

// stack returns the means of all legs as a bar.
func (all journeys) stack(chart, name string) Stack {
	bar := Stack{Chart: chart, Name: name, X: "seconds (mean)"}
	for l := range legs {
		bar.Parts = append(bar.Parts, Part{Name: legNames[l], Value: all.mean(l)})
	}
	return bar
}

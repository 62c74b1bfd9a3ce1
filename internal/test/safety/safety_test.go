package safety

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

var (
	atN, atM = Place{"d", "v", "n"}, Place{"d", "v", "m"}
	whole    = Place{Driver: "d", Volume: "v"}
	publishN = Call{Publish, atN, No}
	publishM = Call{Publish, atM, No}
	detachN  = Call{Unpublish, atN, No}
	sharedM  = Call{Publish, atM, Yes}
	attached = Attachment{Name: "va", UID: "1", Volume: "pv", Noted: atN, Attached: true, Guarded: true}
	volume   = Volume{Name: "pv", Place: whole, Guarded: true}
	inOrder  = World{Attachments: []Attachment{attached}, Volumes: []Volume{volume}, Published: []Place{atN}}
	unserved = World{Published: []Place{atN}}
	empty    = World{Attachments: []Attachment{attached}, Volumes: []Volume{volume}}
)

func with(c Attachment, change func(*Attachment)) Attachment { change(&c); return c }

func detaching(c *Attachment)   { c.Deleting = true }
func unattached(c *Attachment)  { c.Attached = false }
func unguarded(c *Attachment)   { c.Guarded = false }
func failed(c *Attachment)      { c.Error = "no" }
func never(Place) bool          { return false }
func always(Place) bool         { return true }
func waiting(c Attachment) bool { return !c.Attached }

func settled(r Rest) error { return errors.Join(r.Settled()...) }

// Each rule is broken here, and holds beside that.
func TestEachRuleFindsWhatBreaksItAndNothingElse(t *testing.T) {
	perhaps := World{Attachments: inOrder.Attachments, Published: inOrder.Published, Has: func(Place) Known { return Perhaps }}
	wants := func(w World, uid string) Rest {
		return Rest{World: w, Wants: map[string]Want{"va": {uid, atN}}, Keeps: []string{"pv"}}
	}
	released := with(with(attached, detaching), unguarded)
	plainVolume, deleted := Volume{Name: "pv", Place: whole}, Volume{Name: "pv", Place: whole, Deleting: true}
	broken := map[Rule]map[string]error{
		OneCall: {
			"two for one node":             One(sharedM, []Call{sharedM}),
			"elsewhere":                    One(publishM, []Call{detachN}),
			"shared beside a single one":   One(sharedM, []Call{publishN}),
			"beside one of unknown mode":   One(publishM, []Call{{Unpublish, atN, Perhaps}}),
			"unknown mode at one node":     One(Call{Unpublish, atN, Perhaps}, []Call{{Unpublish, atN, Perhaps}}),
			"single beside two shared one": One(publishN, []Call{sharedM, {Publish, Place{"d", "v", "o"}, Yes}}),
		},
		OneNode:         {"attached elsewhere": Elsewhere(publishM, []Place{atN}, never), "of unknown mode": Elsewhere(Call{Publish, atM, Perhaps}, []Place{atN}, never)},
		DetachFirst:     {"due elsewhere": Due(publishM, []Place{atN})},
		Announced:       {"a call without its capability": Unannounced("ControllerPublishVolume")},
		Wanted:          {"reported": Detach(detachN, []Attachment{attached})},
		InUse:           {"used": Use(detachN, true, false)},
		Needless:        {"gone": Need(detachN, nil), "published": Need(publishN, &attached), "detached": Need(detachN, &released), "often": AtMost("x", 2, 1)},
		Holder:          {"another": Holds("a/1", "b/2", ""), "another process": Holds("a/1", "a/2", ""), "nobody": Holds("a", "", ""), "a prefix": Holds("a", "ab/1", "")},
		AttachedTrue:    {"a state": empty.Statuses(), "a write": empty.Wrote(with(attached, unattached), attached), "a write late": empty.Wrote(with(attached, unattached), with(attached, detaching))},
		DetachedTrue:    {"a write": inOrder.Wrote(attached, with(attached, unattached))},
		Finalizer:       {"a state": unserved.Guarded(), "a write": unserved.Wrote(attached, released)},
		VolumeFinalizer: {"a state": unserved.VolumesGuarded(), "a write": unserved.WroteVolume(volume, plainVolume), "has a VolumeAttachment": empty.WroteVolume(volume, plainVolume)},
		SameObject:      {"a later one": Same("va", "1", "2")},
		Fulfilled: {
			"not attached":      settled(Rest{World: World{Attachments: []Attachment{with(attached, unattached)}}}),
			"an error stays":    settled(Rest{World: World{Attachments: []Attachment{with(attached, failed)}}}),
			"without finalizer": settled(Rest{World: World{Attachments: []Attachment{with(attached, unguarded)}}}),
			"not there":         settled(wants(World{Volumes: inOrder.Volumes, Published: inOrder.Published}, "")),
			"not published":     settled(wants(empty, "")),
			"no volume":         settled(wants(World{Attachments: inOrder.Attachments, Published: inOrder.Published}, "")),
		},
		NothingLeft: {
			"being deleted":         settled(Rest{World: World{Attachments: []Attachment{with(attached, detaching)}}}),
			"nobody asks for it":    settled(Rest{World: inOrder, Wants: map[string]Want{}, MayStay: always}),
			"published":             settled(Rest{World: unserved}),
			"on a second node":      settled(Rest{World: World{Attachments: inOrder.Attachments, Published: []Place{atN, atM}}}),
			"published and waiting": settled(Rest{World: World{Attachments: []Attachment{with(attached, unattached)}, Published: []Place{atN}}, Waits: waiting}),
			"a call":                settled(Rest{World: inOrder, Running: []Call{publishN}}),
			"a volume":              settled(Rest{World: World{Volumes: []Volume{deleted}}}),
			"a volume of nobody":    settled(Rest{World: World{Volumes: []Volume{volume}}, Keeps: []string{}}),
		},
	}
	for rule := range Promises {
		if len(broken[rule]) == 0 {
			t.Errorf("nothing breaks %s", rule)
		}
		for name, err := range broken[rule] {
			var b *Broken
			if !errors.As(err, &b) || b.Rule != rule {
				t.Errorf("%s, %s: found %v", rule, name, err)
			}
		}
	}
	another := settled(wants(inOrder, "2")) // object of that name
	if another == nil {
		t.Error("another object of that name is not found")
	}
	for name, err := range map[string]error{
		"one call":                   One(publishN, nil),
		"shared at two nodes":        One(sharedM, []Call{{Unpublish, atN, Perhaps}}),
		"refused elsewhere":          Elsewhere(publishM, []Place{atN}, always),
		"shared elsewhere":           Elsewhere(sharedM, []Place{atN}, never),
		"again where it is":          Elsewhere(publishN, []Place{atN}, never),
		"detach beside another":      Elsewhere(detachN, []Place{atM}, never),
		"detach due of another":      Due(publishM, []Place{{"d", "w", "n"}}),
		"publish where it is due":    Due(publishN, []Place{atN}),
		"detach of what is deleted":  Detach(detachN, []Attachment{with(attached, detaching)}),
		"detach elsewhere":           Detach(Call{Unpublish, atM, No}, []Attachment{attached}),
		"used, and deleted":          Use(detachN, true, true),
		"used, and published":        Use(publishN, true, false),
		"needed publish":             Need(publishN, new(with(attached, unattached))),
		"needed detach":              Need(detachN, &attached),
		"enough":                     AtMost("x", 2, 2),
		"the holder":                 Holds("a/1", "a/1", ""),
		"a process of the holder":    Holds("a", "a/1", ""),
		"statuses":                   inOrder.Statuses(),
		"statuses while it detaches": World{Attachments: []Attachment{with(attached, detaching)}}.Statuses(),
		"guards":                     errors.Join(inOrder.Guarded(), inOrder.VolumesGuarded()),
		"perhaps":                    errors.Join(perhaps.Statuses(), perhaps.Wrote(attached, with(released, unattached)), perhaps.Guarded()),
		"finalizer after the detach": World{}.Wrote(with(attached, detaching), released),
		"another has it noted":       inOrder.Wrote(attached, with(released, func(c *Attachment) { c.Name = "other" })),
		"volume's finalizer":         World{Published: []Place{{"d", "w", "n"}}}.WroteVolume(volume, plainVolume),
		"same object":                Same("va", "1", "1"),
		"settled":                    settled(Rest{World: inOrder}),
		"settled as wanted":          settled(wants(inOrder, "1")),
		"settled, waits":             settled(Rest{World: World{Attachments: []Attachment{with(attached, unattached)}}, Waits: waiting}),
		"settled, may stay":          settled(Rest{World: unserved, MayStay: always}),
		"settled, volume is named":   settled(Rest{World: World{Attachments: inOrder.Attachments, Published: inOrder.Published, Volumes: []Volume{deleted}}}),
	} {
		if err != nil {
			t.Errorf("%s: found %v", name, err)
		}
	}
}

func TestAnUnpublishIsRefusedByAnAnswerOrByManyEndsOfTheConnection(t *testing.T) {
	cut := []codes.Code{codes.Canceled, codes.Canceled, codes.Canceled}
	for name, c := range map[string]struct {
		codes []codes.Code
		then  Method
		want  bool
	}{
		"no call":              {nil, "", false},
		"refused":              {[]codes.Code{codes.Internal}, "", true},
		"succeeded":            {[]codes.Code{codes.OK}, "", false},
		"refused before":       {[]codes.Code{codes.Internal, codes.OK}, "", false},
		"published since":      {[]codes.Code{codes.Internal}, Publish, false},
		"cut":                  {cut, "", false},
		"cut each time":        {append(cut, codes.Canceled), "", true},
		"cut after a refusal":  {[]codes.Code{codes.Unavailable, codes.Canceled}, "", true},
		"cut, succeeded, cut ": {slices.Concat(cut, []codes.Code{codes.OK}, cut), "", false},
	} {
		var r Refusal
		for _, code := range c.codes {
			r = r.After(Unpublish, code)
		}
		if c.then != "" {
			r = r.After(c.then, codes.OK)
		}
		if r.Refused() != c.want {
			t.Errorf("%s: refused %v", name, r.Refused())
		}
	}
}

func TestOnlyActsOfWhoMayHoldTheLeaseHaveAPlace(t *testing.T) {
	const s = time.Second
	// a/1 holds the lease from about 1 s on, nobody from about 5 s on, b/2 from between 6 s and 8 s on, and a/1 from 12 s on.
	turns := []Turn{{1 * s, 2 * s, "a/1"}, {5 * s, 5 * s, ""}, {6 * s, 8 * s, "b/2"}, {12 * s, 12 * s, "a/1"}}
	for name, c := range map[string]struct {
		acts []Act
		want []int
	}{
		"in its turn":                   {[]Act{{3 * s, 4 * s, "a/1", "", ""}, {9 * s, 9 * s, "b/2", "", ""}, {13 * s, 13 * s, "a", "", ""}}, nil},
		"before its turn":               {[]Act{{0, s / 2, "a/1", "", ""}}, []int{0}},
		"as its turn begins":            {[]Act{{0, 1 * s, "a/1", "", ""}, {7 * s, 7 * s, "b", "", ""}}, nil},
		"while nobody may":              {[]Act{{11 * s / 2, 23 * s / 4, "a", "", ""}}, []int{0}},
		"until its turn ends":           {[]Act{{5 * s, 6 * s, "a", "", ""}, {12 * s, 12 * s, "b/2", "", ""}}, nil},
		"after its turn":                {[]Act{{13 * s, 14 * s, "b/2", "", ""}}, []int{0}},
		"another process":               {[]Act{{3 * s, 3 * s, "a/9", "", ""}}, []int{0}},
		"the turn begins for one alone": {[]Act{{6 * s, 7 * s, "b/2", "", ""}, {7 * s, 15 * s / 2, "b/2", "", ""}}, nil},
		"each has a place, both do not": {[]Act{{3 * s, 3 * s, "a/1", "", ""}, {12 * s, 12 * s, "a/1", "", ""}, {12 * s, 12 * s, "b/2", "", ""}}, nil},
		"in one turn, and after it":     {[]Act{{25 * s / 2, 13 * s, "b/2", "", ""}, {3 * s, 13 * s, "b/2", "", ""}}, []int{0}},
	} {
		var want []Act
		for _, i := range c.want {
			want = append(want, c.acts[i])
		}
		if got := Misplaced(turns, c.acts); !slices.Equal(got, want) {
			t.Errorf("%s: misplaced %v, want %v", name, got, want)
		}
	}
	// Two turns whose begins are not known: who acts late in the one leaves no room for the other before that.
	unsure := []Turn{{0, 0, "a/1"}, {1 * s, 9 * s, "b/2"}}
	acts := []Act{{6 * s, 6 * s, "a/1", "late", ""}, {3 * s, 4 * s, "b/2", "early", ""}}
	if got := Misplaced(unsure, acts); len(got) != 1 || got[0].Text != "late" {
		t.Errorf("misplaced %v", got)
	}
}

func TestEachRuleSaysWhatItPromisesAndWhy(t *testing.T) {
	for _, rule := range slices.Sorted(maps.Keys(Promises)) {
		if p := Promises[rule]; p.Text == "" || p.Source == "" {
			t.Errorf("%s: %+v", rule, p)
		}
	}
}

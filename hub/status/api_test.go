package status

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// fetch asks for JSON and decodes it strictly.
func fetch[T any](t *testing.T, url string) T {
	t.Helper()
	code, header, body := get(t, url)
	if code != http.StatusOK || header.Get("Content-Type") != "application/json" {
		t.Fatalf("%s: got %d %s %s", url, code, header.Get("Content-Type"), body)
	}
	var value T
	decoder := json.NewDecoder(strings.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("%s: %v in %s", url, err, body)
	}
	return value
}

// filled returns a value of a type of which nothing is zero.
func filled[T any]() T {
	var value T
	fill(reflect.ValueOf(&value).Elem())
	return value
}

func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("text <b>&amp; \u2028")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(90 * time.Second))
	case reflect.Uint64:
		v.SetUint(7)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		element := reflect.New(v.Type().Elem()).Elem()
		fill(element)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("a.example.com"), element)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(1700000000, 0).UTC()))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	default:
		panic(v.Kind())
	}
}

func TestEverythingOfTheModelIsInTheAPI(t *testing.T) {
	h := newFakeHub()
	u := startServer(t, h)
	driver, attachment, overview := filled[Driver](), filled[Attachment](), filled[Overview]()
	driver.Name = "a.example.com"
	h.change(func() {
		h.drivers[driver.Name], h.attachments[attachment.Name], h.overview = driver, attachment, overview
	})
	// Health is computed here.
	computed := cmp.Options{cmpopts.IgnoreFields(Driver{}, "Health"), cmpopts.IgnoreFields(Lease{}, "Duration")} // Duration is for explain
	if diff := cmp.Diff(DriverList{[]Driver{driver}}, fetch[DriverList](t, u+"/api/v1/drivers"), computed); diff != "" {
		t.Errorf("drivers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(driver, fetch[Driver](t, u+"/api/v1/drivers/a.example.com"), computed); diff != "" {
		t.Errorf("driver (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(AttachmentList{Attachments: []Attachment{attachment}, Total: 1}, fetch[AttachmentList](t, u+"/api/v1/attachments"), cmpopts.IgnoreFields(Attachment{}, "Health")); diff != "" {
		t.Errorf("attachments (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(overview, fetch[Overview](t, u+"/api/v1/overview")); diff != "" {
		t.Errorf("overview (-want +got):\n%s", diff)
	}
}

func TestWhatIsNotThereIsAnEmptyListOrIsLeftOut(t *testing.T) {
	h := newFakeHub()
	u := startServer(t, h)
	h.change(func() { h.overview = Overview{Replicas: []string{"hub-a"}} })
	for path, want := range map[string]string{
		"/api/v1/drivers":     `{"drivers":[]}`,
		"/api/v1/attachments": `{"attachments":[],"total":0}`,
	} {
		if _, _, body := get(t, u+path); body != want+"\n" {
			t.Errorf("%s: got %s, want %s", path, body, want)
		}
	}
	h.change(func() {
		h.drivers["a"] = Driver{Name: "a", State: "Ready", Up: true, Mode: "active", Lease: Lease{Mine: true}}
	})
	want := `{"name":"a","state":"Ready","health":{"state":"fine"},"up":true,"mode":"active","lease":{"mine":true},"workers":0,"busy":0,"lanes":[]}`
	if _, _, body := get(t, u+"/api/v1/drivers/a"); body != want+"\n" {
		t.Errorf("got %s, want %s", body, want)
	}
	if _, _, body := get(t, u+"/api/v1/drivers"); body != `{"drivers":[`+want+"]}\n" {
		t.Errorf("got %s", body)
	}
}

func TestADriverThatIsNotServedIsNotFound(t *testing.T) {
	h := newFakeHub()
	u := startServer(t, h)
	h.engage("a.example.com")
	h.retire("a.example.com")
	for _, name := range []string{"a.example.com", url.PathEscape("<script>alert(1)</script>")} {
		code, _, body := get(t, u+"/api/v1/drivers/"+name)
		if code != http.StatusNotFound || !strings.Contains(body, "is not served here") || strings.Contains(body, "<") {
			t.Errorf("%s: got %d %s", name, code, body)
		}
	}
}

func TestListsAreSortedAndPagesHaveEachVolumeAttachmentOnceWhileOthersComeAndGo(t *testing.T) {
	h := newFakeHub()
	u := startServer(t, h)
	for _, name := range []string{"c", "a", "b", "a.b", "a-b"} {
		h.engage(name)
	}
	var drivers []string
	for _, d := range fetch[DriverList](t, u+"/api/v1/drivers").Drivers {
		drivers = append(drivers, d.Name)
	}
	if got := strings.Join(drivers, " "); got != "a a-b a.b b c" {
		t.Errorf("the drivers are %s", got)
	}
	h.load("a.example.com", 25, Attached)
	var names []string
	next := ""
	for page := 0; ; page++ {
		list := fetch[AttachmentList](t, u+"/api/v1/attachments?limit=10&continue="+url.QueryEscape(next))
		for _, a := range list.Attachments {
			names = append(names, a.Name)
		}
		if page == 0 {
			if list.Total != 25 {
				t.Errorf("total %d, want 25", list.Total)
			}
			h.change(func() {
				delete(h.attachments, list.Continue) // what the next page goes on from
				h.attachments["a"] = Attachment{Name: "a"}
			})
		}
		if next = list.Continue; next == "" {
			break
		}
	}
	var want []string
	for i := range 25 {
		want = append(want, fmt.Sprintf("a.example.com-%05d", i))
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAttachmentsAreFilteredAndAPageIsBounded(t *testing.T) {
	h := newFakeHub()
	u := startServer(t, h)
	h.load("a.example.com", 6000, Attached)
	h.load("b.example.com", 2, Failing)
	for query, want := range map[string]struct{ page, total int }{
		"":                                   {defaultPage, 6002},
		"driver=&state=":                     {defaultPage, 6002},
		"driver=a.example.com&limit=5000":    {5000, 6000},
		"driver=none":                        {0, 0},
		"state=failing&limit=1":              {1, 2},
		"state=failing&limit=2":              {2, 2}, // just full
		"state=failing&driver=a.example.com": {0, 0},
		"node=node-1":                        {2, 2},
		"node=node-2":                        {1, 1},
		"name=b.example.com-00001":           {1, 1},
	} {
		list := fetch[AttachmentList](t, u+"/api/v1/attachments?"+query)
		if len(list.Attachments) != want.page || list.Total != want.total || (list.Continue != "") != (want.page < want.total) {
			t.Errorf("%q: got %d of %d, continue %q, want %v", query, len(list.Attachments), list.Total, list.Continue, want)
		}
	}
}

func TestQueriesThatMeanNothingAreErrors(t *testing.T) {
	u := startServer(t, newFakeHub())
	for query, want := range map[string]string{
		"drivr=a":         `unknown parameter \"drivr\"`,
		"state=broken":    `state \"broken\" is none of attaching, attached`,
		"limit=0":         "not a number from 1 to 5000",
		"limit=5001":      "not a number from 1 to 5000",
		"limit=ten":       "not a number from 1 to 5000",
		"limit=-1":        "not a number from 1 to 5000",
		"limit=":          "not a number from 1 to 5000",
		"node=a&node=b":   "node is given 2 times",
		"driver=%zz":      "parse query",
		"driver=a;node=b": "parse query",
	} {
		code, header, body := get(t, u+"/api/v1/attachments?"+query)
		if code != http.StatusBadRequest || header.Get("Content-Type") != "application/json" || !strings.Contains(body, want) {
			t.Errorf("%q: got %d %s, want %q", query, code, body, want)
		}
	}
}

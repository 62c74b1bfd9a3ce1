package deploy_test

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ruleFile is what matters here of a PrometheusRule.
type ruleFile struct {
	Spec struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
}

func readRules(t *testing.T) ruleFile {
	t.Helper()
	text, err := json.Marshal(find(t, objectsOf(t, withProxies), "PrometheusRule", "csi-attach-hub").Object)
	if err != nil {
		t.Fatal(err)
	}
	var rules ruleFile
	if err := json.Unmarshal(text, &rules); err != nil {
		t.Fatal(err)
	}
	return rules
}

func TestAlertsUseMetricsThatExistAndSayWhatToDo(t *testing.T) {
	rules := readRules(t)
	hub := seriesOfTheHub(t)
	seen := map[string]bool{}
	for _, group := range rules.Spec.Groups {
		for _, r := range group.Rules {
			if seen[r.Alert] || !strings.HasPrefix(r.Alert, "AttachHub") {
				t.Errorf("alert %q: the name is bad or there twice", r.Alert)
			}
			seen[r.Alert] = true
			checkSelectors(t, r.Alert, r.Expr, hub)
			if s := r.Labels["severity"]; s != "critical" && s != "warning" {
				t.Errorf("%s has severity %q", r.Alert, s)
			}
			if _, err := model.ParseDuration(r.For); r.For != "" && err != nil {
				t.Errorf("%s: %v", r.Alert, err)
			}
			for _, name := range []string{"summary", "description", "runbook"} {
				text := r.Annotations[name]
				if len(text) < 20 {
					t.Errorf("%s: %s is %q", r.Alert, name, text)
				}
			}
		}
	}
}

// checkSelectors checks that each selector of an expression finds a series of a hub. That has no request that was refused.
func checkSelectors(t *testing.T, what, expression string, hub []labels.Labels) {
	t.Helper()
	e, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	for _, selector := range parser.ExtractSelectors(e) {
		if !slices.ContainsFunc(hub, func(l labels.Labels) bool {
			return !slices.ContainsFunc(selector, func(m *labels.Matcher) bool { return !m.Matches(l.Get(m.Name)) && (m.Name != "code" || !l.Has("code")) })
		}) {
			t.Errorf("%s: the hub has no series for %v", what, selector)
		}
	}
}

var mention = regexp.MustCompile(`\$labels\.(\w+)|{{(\w+)}}`)

// checkMentioned checks that a result has the labels that a template names, of an alert or of a legend.
func checkMentioned(t *testing.T, what, template string, result labels.Labels) {
	t.Helper()
	for _, m := range mention.FindAllStringSubmatch(template, -1) {
		if !result.Has(m[1] + m[2]) {
			t.Errorf("%s: %q names a label that %s does not have", what, template, result)
		}
	}
}

// dashboard is what matters here of Grafana's JSON.
type dashboard struct {
	Templating struct {
		List []struct {
			Name, Type string
			Query      any
		}
	}
	Panels []struct {
		ID          int
		Title, Type string
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct{ Expr, LegendFormat string }
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	config := find(t, objectsOf(t, withProxies), "ConfigMap", "csi-attach-hub-dashboard")
	text, _, _ := unstructured.NestedString(config.Object, "data", "csi-attach-hub.json")
	var d dashboard
	if err := json.NewDecoder(bytes.NewReader([]byte(text))).Decode(&d); err != nil {
		t.Fatal(err)
	}
	return d
}

// own are the metrics that the hub documents; those of its libraries may change with them.
var own = regexp.MustCompile("^(attach_hub|csi_sidecar)_")

func TestPanelsUseMetricsThatExist(t *testing.T) {
	hub := slices.DeleteFunc(seriesOfTheHub(t), func(l labels.Labels) bool { return !own.MatchString(l.Get(model.MetricNameLabel)) })
	var constant stored
	for _, l := range hub {
		var samples []chunks.Sample
		for m := range 20 {
			samples = append(samples, sample{begin.Add(time.Duration(m) * time.Minute).UnixMilli(), 1})
		}
		constant = append(constant, storage.NewListSeries(l, samples))
	}
	// Grafana's own variables stand for what it puts there.
	variables := strings.NewReplacer("$__rate_interval", "5m", `=~"$driver"`, `=~"d|e"`)
	ids := map[int]bool{}
	panels := 0
	for _, p := range readDashboard(t).Panels {
		if ids[p.ID] {
			t.Errorf("%s: the id %d is there twice", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s asks for nothing", p.Title)
		}
		for _, target := range p.Targets {
			panels++
			expression := variables.Replace(target.Expr)
			if strings.Contains(expression, "$") {
				t.Errorf("%s: unknown variable in %s", p.Title, expression)
			}
			checkSelectors(t, p.Title, expression, hub)
			results := evaluate(t, constant, expression)
			if len(results) == 0 {
				t.Errorf("%s: %s shows nothing", p.Title, expression)
			}
			for _, result := range results {
				checkMentioned(t, p.Title, target.LegendFormat, result)
			}
		}
	}
	if panels < 20 {
		t.Errorf("only %d expressions", panels)
	}
}

func TestPanelsDoNotOverlap(t *testing.T) {
	all := readDashboard(t).Panels
	for i, a := range all {
		if a.GridPos.X < 0 || a.GridPos.X+a.GridPos.W > 24 || a.GridPos.H == 0 || a.GridPos.W == 0 {
			t.Errorf("%s is out of the grid: %+v", a.Title, a.GridPos)
		}
		for _, b := range all[:i] {
			if a.GridPos.X < b.GridPos.X+b.GridPos.W && b.GridPos.X < a.GridPos.X+a.GridPos.W &&
				a.GridPos.Y < b.GridPos.Y+b.GridPos.H && b.GridPos.Y < a.GridPos.Y+a.GridPos.H {
				t.Errorf("%s and %s overlap", a.Title, b.Title)
			}
		}
	}
}

func TestVariablesOfTheDashboardComeFromMetricsThatExist(t *testing.T) {
	hub := seriesOfTheHub(t)
	query := regexp.MustCompile(`label_values\((\w+), (\w+)\)`)
	found := 0
	for _, v := range readDashboard(t).Templating.List {
		if v.Type != "query" {
			continue
		}
		text, err := json.Marshal(v.Query)
		if err != nil {
			t.Fatal(err)
		}
		m := query.FindStringSubmatch(string(text))
		if m == nil {
			t.Errorf("%s: cannot read %s", v.Name, text)
			continue
		}
		found++
		if !slices.ContainsFunc(hub, func(l labels.Labels) bool { return l.Get(model.MetricNameLabel) == m[1] && l.Has(m[2]) }) {
			t.Errorf("%s: the hub has no label %s of %s", v.Name, m[2], m[1])
		}
	}
	if found == 0 {
		t.Error("no variable of drivers")
	}
}

func TestScrapesAreOftenEnoughForTheAlerts(t *testing.T) {
	monitor := find(t, objectsOf(t, withProxies), "ServiceMonitor", "csi-attach-hub")
	endpoints, _, _ := unstructured.NestedSlice(monitor.Object, "spec", "endpoints")
	interval, _, _ := unstructured.NestedString(endpoints[0].(map[string]any), "interval")
	d, err := time.ParseDuration(interval)
	if err != nil || d > time.Minute {
		t.Errorf("scraped every %q: the shortest alert waits for a minute", interval)
	}
}

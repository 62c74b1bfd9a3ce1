package deploy_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// check says what is wrong with an expression: its syntax, a metric that the hub does
// not have, a label that the metric does not have, a value that the label never has. It
// returns the labels of its result.
func (k known) check(expression string) (result []string, problems []string) {
	e, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		return nil, []string{err.Error()}
	}
	c := checker{known: k}
	return slices.Sorted(maps.Keys(c.labels(e))), c.problems
}

type checker struct {
	known    known
	problems []string
}

type set map[string]bool

func (c *checker) complain(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

// need complains of names that are not in the set.
func (c *checker) need(e parser.Expr, names []string, have set) {
	for _, name := range names {
		if !have[name] {
			c.complain("%s: there is no label %s in %v", e, name, slices.Sorted(maps.Keys(have)))
		}
	}
}

// labels returns the labels that the result of an expression has.
func (c *checker) labels(e parser.Expr) set {
	switch e := e.(type) {
	case *parser.VectorSelector:
		return c.selected(e)
	case *parser.MatrixSelector:
		return c.labels(e.VectorSelector)
	case *parser.ParenExpr:
		return c.labels(e.Expr)
	case *parser.AggregateExpr:
		have := c.labels(e.Expr)
		c.need(e, e.Grouping, have)
		if e.Without {
			return less(have, e.Grouping)
		}
		return setOf(e.Grouping)
	case *parser.BinaryExpr:
		return c.joined(e)
	case *parser.Call:
		return c.called(e)
	case *parser.NumberLiteral:
		return set{}
	}
	c.complain("%s: a %T, which this test does not know", e, e)
	return nil
}

func (c *checker) selected(e *parser.VectorSelector) set {
	have, ok := c.known[e.Name]
	if !ok {
		c.complain("the hub has no metric %s", e.Name)
		return nil
	}
	for _, m := range e.LabelMatchers {
		if m.Name == model.MetricNameLabel {
			continue
		}
		values, ok := have[m.Name]
		if !ok {
			c.complain("%s has no label %s", e.Name, m.Name)
		}
		if values != nil && !slices.Contains(values, m.Value) {
			c.complain("%s: %s is never %q", e.Name, m.Name, m.Value)
		}
	}
	return setOf(slices.Collect(maps.Keys(have)))
}

func (c *checker) called(e *parser.Call) set {
	have := set{}
	for _, argument := range e.Args {
		maps.Copy(have, c.labels(argument))
	}
	switch e.Func.Name {
	case "absent":
		return set{}
	case "histogram_quantile":
		c.need(e, []string{"le"}, have)
		delete(have, "le")
	}
	return have
}

func (c *checker) joined(e *parser.BinaryExpr) set {
	left, right := c.labels(e.LHS), c.labels(e.RHS)
	m := e.VectorMatching
	if m == nil || e.LHS.Type() != parser.ValueTypeVector || e.RHS.Type() != parser.ValueTypeVector {
		maps.Copy(left, right)
		return left
	}
	if m.On {
		c.need(e, m.MatchingLabels, left)
		c.need(e, m.MatchingLabels, right)
	} else if e.Op != parser.LOR && !maps.Equal(less(left, m.MatchingLabels), less(right, m.MatchingLabels)) {
		c.complain("%s: the sides have different labels, and nothing matches", e)
	}
	c.need(e, m.Include, right)
	if e.Op == parser.LOR {
		maps.Copy(left, right)
	} else if !m.On {
		left = less(left, m.MatchingLabels)
	}
	maps.Copy(left, setOf(m.Include))
	return left
}

// less returns a set without the labels that ignoring() names.
func less(all set, names []string) set {
	left := maps.Clone(all)
	for _, name := range names {
		delete(left, name)
	}
	return left
}

func setOf(names []string) set {
	s := set{}
	for _, name := range names {
		s[name] = true
	}
	return s
}

var mention = regexp.MustCompile(`\$labels\.(\w+)|{{(\w+)}}`)

// mentioned returns the labels that a template names, of an alert or of a legend.
func mentioned(template string) []string {
	var names []string
	for _, m := range mention.FindAllStringSubmatch(template, -1) {
		names = append(names, m[1]+m[2])
	}
	return names
}

func TestCheckOfExpressionsFindsMistakes(t *testing.T) {
	k := metricsOfTheHub(t)
	for expression, want := range map[string]string{
		`sum by (driver) (attach_hub_stuck)`:                                                               "",
		`sum by (driver) (attach_hub_stuck`:                                                                "unclosed",
		`attach_hub_stack > 0`:                                                                             "no metric attach_hub_stack",
		`attach_hub_stuck{node="n"}`:                                                                       "no label node",
		`attach_hub_stuck{operation="attaching"}`:                                                          "never",
		`sum by (node) (attach_hub_stuck)`:                                                                 "no label node",
		`sum by (le) (sum by (driver) (rate(attach_hub_operation_seconds_bucket[5m])))`:                    "no label le",
		`histogram_quantile(0.9, sum by (driver) (attach_hub_operation_seconds_bucket))`:                   "no label le",
		`histogram_quantile(0.9, sum by (le) (rate(attach_hub_operation_seconds[5m])))`:                    "no metric attach_hub_operation_seconds",
		`max by (driver) (attach_hub_stuck) and max by (operation) (attach_hub_stuck)`:                     "different labels",
		`max by (driver) (attach_hub_stuck) and on (driver) max by (driver, operation) (attach_hub_stuck)`: "",
	} {
		_, problems := k.check(expression)
		if got := strings.Join(problems, "; "); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: got %q, want %q", expression, got, want)
		}
	}
}

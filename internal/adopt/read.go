package adopt

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
)

// Read reads the objects of one file: YAML or JSON documents, in which a List stands for its items. Empty documents
// are skipped. Its error has every document that cannot be read, with the reason, or says that the file is a template.
func Read(file string, r io.Reader) ([]Object, error) {
	var objects []Object
	documents := utilyaml.NewYAMLReader(bufio.NewReader(r))
	var problems []error
	for n := 1; ; n++ {
		raw, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, errors.Join(problems...)
		}
		source := fmt.Sprintf("%s: document %d", terminal.Line(file), n)
		if err != nil {
			return objects, errors.Join(append(problems, fmt.Errorf("%s: %w", source, err))...)
		}
		read, err := readDocument(source, raw)
		if err != nil && bytes.Contains(raw, []byte("{{")) { // of Go's templates, or of mustache
			return nil, fmt.Errorf("%s: is a template: render it first, for example with helm template RELEASE CHART -n NAMESPACE", terminal.Line(file))
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", source, err))
		}
		objects = append(objects, read...)
	}
}

// Object is one Kubernetes object of the input.
type Object struct {
	unstructured.Unstructured
	Source string // where it was read: "FILE: document 1", and ": items[0]" of a List
	Chart  string // that Helm has rendered it from, by its comment "# Source: CHART/templates/..."; "" for none
}

// String names the object and where it was read.
func (o Object) String() string {
	return fmt.Sprintf("%s (%s %s)", o.Source, terminal.Line(o.GetKind()), terminal.Line(o.GetName()))
}

// chartSource is the comment that Helm writes at the head of each document.
var chartSource = regexp.MustCompile(`(?m)^# Source: ([A-Za-z0-9._-]+)/`)

func readDocument(source string, raw []byte) ([]Object, error) {
	var content any
	if err := yaml.UnmarshalStrict(bytes.TrimPrefix(raw, []byte("\ufeff")), &content); err != nil {
		text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "), "error unmarshaling JSON: ")
		return nil, fmt.Errorf("not a Kubernetes object in YAML or JSON: %s", terminal.Line(text))
	}
	object, isObject := content.(map[string]any)
	if content == nil || isObject && len(object) == 0 {
		return nil, nil
	}
	o := Object{Unstructured: unstructured.Unstructured{Object: object}, Source: source}
	if from := chartSource.FindSubmatch(raw); from != nil {
		o.Chart = terminal.Line(string(from[1]))
	}
	if !isKubernetes(o) { // without the content: it can be that of a Secret
		return nil, errors.New("not a Kubernetes object: want a mapping with apiVersion and kind")
	}
	if !o.IsList() || !strings.HasSuffix(o.GetKind(), "List") {
		return []Object{o}, nil
	}
	var all []Object
	var problems []error
	items, _ := o.Object["items"].([]any)
	for i, item := range items {
		content, _ := item.(map[string]any)
		one := Object{Unstructured: unstructured.Unstructured{Object: content}, Source: fmt.Sprintf("%s: items[%d]", source, i)}
		if !isKubernetes(one) {
			problems = append(problems, fmt.Errorf("items[%d]: not a Kubernetes object", i))
		}
		all = append(all, one)
	}
	return all, errors.Join(problems...)
}

func isKubernetes(o Object) bool { return o.GetAPIVersion() != "" && o.GetKind() != "" }

package adopt

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
)

// maxInput bounds one file. The largest chart of a driver prints less than 1 MiB.
const maxInput = 64 << 20

// Source says where an object was read.
type Source struct {
	File     string // "stdin" or a path
	Document int    // from 1
	Item     int    // of a List, from 1; 0 for an object that is a document
}

func (s Source) String() string {
	text := terminal.Line(s.File)
	if s.Document > 0 {
		text += fmt.Sprintf(": document %d", s.Document)
	}
	if s.Item > 0 {
		text += fmt.Sprintf(": items[%d]", s.Item-1)
	}
	return text
}

// Object is one Kubernetes object of the input.
type Object struct {
	unstructured.Unstructured
	Source Source
}

// String names the object and where it was read.
func (o Object) String() string {
	return fmt.Sprintf("%s (%s %s)", o.Source, terminal.Line(o.GetKind()), terminal.Line(o.GetName()))
}

// Read reads the objects of one file: YAML or JSON documents, in which a List stands for its items. Empty documents
// are skipped. Its error has every document that cannot be read, with the reason.
func Read(file string, r io.Reader) ([]Object, error) {
	content, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Source{File: file}, err)
	}
	if len(content) > maxInput {
		return nil, fmt.Errorf("%s: larger than %d MiB: pass the manifests of one driver", Source{File: file}, maxInput>>20)
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	var objects []Object
	var problems []error
	for n := 1; ; n++ {
		raw, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, errors.Join(problems...)
		}
		source := Source{File: file, Document: n}
		if err != nil {
			return objects, errors.Join(append(problems, fmt.Errorf("%s: %w", source, err))...)
		}
		read, err := readDocument(source, raw)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", source, err))
		}
		objects = append(objects, read...)
	}
}

func readDocument(source Source, raw []byte) ([]Object, error) {
	raw = bytes.TrimPrefix(raw, []byte("\ufeff"))
	var content any
	if err := yaml.UnmarshalStrict(raw, &content); err != nil {
		text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "), "error unmarshaling JSON: ")
		return nil, fmt.Errorf("not a Kubernetes object in YAML or JSON: %s", terminal.Line(text))
	}
	object, isObject := content.(map[string]any)
	switch {
	case content == nil || isObject && len(object) == 0:
		return nil, nil
	case !isObject: // without the content: it can be that of a Secret
		return nil, errors.New("not a Kubernetes object: want a mapping with apiVersion and kind")
	}
	return itemsOf(Object{Unstructured: unstructured.Unstructured{Object: object}, Source: source})
}

// itemsOf returns an object, or the items of a List.
func itemsOf(o Object) ([]Object, error) {
	if o.GetAPIVersion() == "" || o.GetKind() == "" {
		return nil, errors.New("not a Kubernetes object: apiVersion or kind is missing")
	}
	if !o.IsList() || !strings.HasSuffix(o.GetKind(), "List") {
		return []Object{o}, nil
	}
	var all []Object
	var problems []error
	items, _ := o.Object["items"].([]any)
	for i, item := range items {
		content, _ := item.(map[string]any)
		one := Object{Unstructured: unstructured.Unstructured{Object: content}, Source: o.Source}
		one.Source.Item = i + 1
		if one.GetAPIVersion() == "" || one.GetKind() == "" {
			problems = append(problems, fmt.Errorf("items[%d]: not a Kubernetes object", i))
		}
		all = append(all, one)
	}
	return all, errors.Join(problems...)
}

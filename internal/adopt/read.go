package adopt

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// maxInput bounds one file. The largest chart of a driver prints less than 1 MiB.
const maxInput = 64 << 20

// Source says where an object was read.
type Source struct {
	File     string // "stdin", a path, or "cluster"
	Document int    // from 1; 0 for an object of the cluster
}

func (s Source) String() string {
	if s.Document == 0 {
		return s.File
	}
	return fmt.Sprintf("%s: document %d", s.File, s.Document)
}

// Object is one Kubernetes object of the input.
type Object struct {
	unstructured.Unstructured
	Source Source
	Raw    []byte // the YAML document as it was read; nil for an item of a List
}

// String names the object and where it was read.
func (o Object) String() string {
	return fmt.Sprintf("%s (%s %s)", o.Source, o.GetKind(), o.GetName())
}

// Read reads the objects of one file: YAML or JSON documents, in which a List stands for its items. Empty documents
// are skipped. Its error has every document that cannot be read, with the reason.
func Read(file string, r io.Reader) ([]Object, error) {
	limited := &io.LimitedReader{R: r, N: maxInput + 1}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(limited))
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
		if limited.N == 0 {
			return nil, fmt.Errorf("%s: larger than %d MiB: pass the manifests of one driver", file, maxInput>>20)
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
	var content map[string]any
	if err := yaml.UnmarshalStrict(raw, &content); err != nil {
		return nil, fmt.Errorf("not a Kubernetes object in YAML or JSON: %s", strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "))
	}
	if len(content) == 0 {
		return nil, nil
	}
	o := Object{Unstructured: unstructured.Unstructured{Object: content}, Source: source, Raw: raw}
	if o.GetAPIVersion() == "" || o.GetKind() == "" {
		return nil, errors.New("not a Kubernetes object: apiVersion or kind is missing")
	}
	if !o.IsList() {
		return []Object{o}, nil
	}
	var items []Object
	err := o.EachListItem(func(item runtime.Object) error {
		u, ok := item.(*unstructured.Unstructured)
		if !ok || u.GetKind() == "" {
			return errors.New("items: an item is not a Kubernetes object: kind is missing")
		}
		items = append(items, Object{Unstructured: *u, Source: source})
		return nil
	})
	return items, err
}

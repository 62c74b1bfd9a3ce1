package mutants

import (
	"fmt"
	"go/ast"
	"go/token"
	"strings"
)

// function is a function with a mutant. The numbers are offsets in its file.
type function struct {
	decl           *ast.FuncDecl
	from, name, to int
	body           int // after the opening brace
	replaced       int // of the text that is replaced
}

// enclosing returns the function whose body has a text, which must be in the file once.
func enclosing(set *token.FileSet, file *ast.File, source, text string) (function, error) {
	if n := strings.Count(source, text); n != 1 {
		return function{}, fmt.Errorf("the text to replace is in %s %d times, want once: %q", set.Position(file.Package).Filename, n, text)
	}
	offset := func(p token.Pos) int { return set.Position(p).Offset }
	at := strings.Index(source, text)
	for _, d := range file.Decls {
		decl, ok := d.(*ast.FuncDecl)
		if !ok || decl.Body == nil {
			continue
		}
		f := function{decl, offset(decl.Pos()), offset(decl.Name.Pos()), offset(decl.End()), offset(decl.Body.Lbrace) + 1, at}
		if f.body <= at && at+len(text) <= f.to {
			return f, f.check()
		}
	}
	return function{}, fmt.Errorf("the text to replace is in no body of a function: %q", text)
}

// names returns the names in a list of parameters, and whether all can be used.
func names(list *ast.FieldList) (all []string, usable bool) {
	if list == nil {
		return nil, true
	}
	usable = true
	for _, field := range list.List {
		usable = usable && len(field.Names) > 0
		for _, name := range field.Names {
			usable = usable && name.Name != "_"
			all = append(all, name.Name)
		}
	}
	return all, usable
}

// check returns an error if the function cannot pass its parameters on to its copy.
func (f function) check() error {
	_, receiver := names(f.decl.Recv)
	if _, parameters := names(f.decl.Type.Params); !receiver || !parameters {
		return fmt.Errorf("%s has a parameter without a name", f.decl.Name.Name)
	}
	return nil
}

// nameOf returns the name of the copy with a mutant.
func (f function) nameOf(number int) string {
	return fmt.Sprintf("%sMutant%d", f.decl.Name.Name, number)
}

// call returns the statements that call the copy with a mutant, and return.
func (f function) call(number int) string {
	arguments, _ := names(f.decl.Type.Params)
	list := strings.Join(arguments, ", ")
	if n := f.decl.Type.Params.List; len(n) > 0 {
		if _, variadic := n[len(n)-1].Type.(*ast.Ellipsis); variadic {
			list += "..."
		}
	}
	called := f.nameOf(number) + "(" + list + ")"
	if receiver, _ := names(f.decl.Recv); len(receiver) == 1 {
		called = receiver[0] + "." + called
	}
	if f.decl.Type.Results == nil {
		return called + "; return"
	}
	return "return " + called
}

// copied returns the copy of the function with a mutant.
func (f function) copied(source string, number int, m mutant) string {
	return apply(source[f.from:f.to],
		edit{f.name - f.from, f.name - f.from + len(f.decl.Name.Name), f.nameOf(number)},
		edit{f.replaced - f.from, f.replaced - f.from + len(m.old), m.new})
}

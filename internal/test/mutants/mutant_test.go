package mutants

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/race"
)

// mutant is one deliberate fault.
type mutant struct {
	name   string // what is wrong
	harm   string // what it would do to a user
	file   string // path from the root of the module
	old    string // the text that is replaced: once in the file, in the body of one function
	new    string
	killed []string // tests that fail with it: FOLDER.TestName
}

// killer is a test that fails with a mutant.
type killer struct{ folder, test string }

func killerOf(text string) killer {
	i := strings.LastIndex(text, ".")
	return killer{text[:max(i, 0)], text[i+1:]}
}

func TestEachMutantHasANameAHarmAndAKiller(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range rows {
		if m.name == "" || m.harm == "" || m.file == "" || len(m.killed) == 0 {
			t.Errorf("mutant %q of %s: name, harm, file and killed must be set", m.name, m.file)
		}
		if seen[m.name] {
			t.Errorf("two mutants have the name %q", m.name)
		}
		seen[m.name] = true
		if m.old == m.new {
			t.Errorf("mutant %q changes nothing", m.name)
		}
	}
	if least := 25; len(seen) < least {
		t.Errorf("there are %d mutants, want at least %d", len(seen), least)
	}
}

// TestEachMutantFitsIntoTheCode finds mutants whose text the code does not have any more, or that do not compile.
func TestEachMutantFitsIntoTheCode(t *testing.T) {
	rewritten, errs := rewrite(rows)
	for _, err := range errs {
		t.Error(err)
	}
	if t.Failed() {
		return
	}
	var folders []string
	for file := range rewritten {
		if folder := path.Dir(file); !slices.Contains(folders, folder) {
			folders = append(folders, folder)
		}
	}
	slices.Sort(folders)
	listed := list(t, folders)
	set := token.NewFileSet()
	imports := importer.ForCompiler(set, "gc", func(name string) (io.ReadCloser, error) {
		if listed[name].Export == "" {
			return nil, errors.New("no export data of " + name)
		}
		return os.Open(listed[name].Export)
	})
	for _, folder := range folders {
		var files []*ast.File
		for _, name := range append(listed[module+"/"+folder].GoFiles, switchFile) {
			var text any // nil: as on disk
			if source, ok := rewritten[path.Join(folder, name)]; ok {
				text = source
			}
			file, err := parser.ParseFile(set, filepath.Join(root, folder, name), text, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		check := types.Config{Importer: imports, Error: func(err error) { t.Error(err) }}
		_, _ = check.Check(module+"/"+folder, set, files, nil) // Error has reported the errors
	}
}

// module is the path of the module.
const module = "github.com/csi-attach-hub/csi-attach-hub"

// listedPackage is what go list says of a package.
type listedPackage struct {
	ImportPath, Export string
	GoFiles            []string
}

// list returns some packages and all that they import, by import path, with the files of their export data. go builds what its
// cache does not have.
func list(t *testing.T, folders []string) map[string]listedPackage {
	t.Helper()
	arguments := []string{"list", "-export", "-deps", "-json=ImportPath,Export,GoFiles"}
	if race.Detector {
		arguments = append(arguments, "-race") // the other tests have built these
	}
	for _, folder := range folders {
		arguments = append(arguments, "./"+folder)
	}
	command := exec.Command("go", arguments...)
	command.Dir = root
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, &stderr)
	}
	all := map[string]listedPackage{}
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var p listedPackage
		if err := decoder.Decode(&p); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
}

// TestEachKillerIsATest finds killers that were renamed or removed.
func TestEachKillerIsATest(t *testing.T) {
	tests := map[string]map[string]bool{} // by folder
	for _, m := range rows {
		for _, text := range m.killed {
			k := killerOf(text)
			if tests[k.folder] == nil {
				tests[k.folder] = testsOf(t, k.folder)
			}
			if !tests[k.folder][k.test] {
				t.Errorf("mutant %q: folder %q has no test %q", m.name, k.folder, k.test)
			}
		}
	}
}

// testsOf returns the names of the tests in a folder.
func testsOf(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				found[f.Name.Name] = true
			}
		}
	}
	return found
}

package mutants

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// root is the root of the module.
const root = "../../.."

// variable is the environment variable with the number of the mutant that a rewritten program has.
const variable = "MUTANT"

// switchFile is the file that is added to each package with mutants.
const switchFile = "mutant_of_this_process.go"

// edit replaces the text between two offsets.
type edit struct {
	from, to int
	text     string
}

// apply makes edits that do not overlap.
func apply(text string, edits ...edit) string {
	slices.SortFunc(edits, func(a, b edit) int { return b.from - a.from })
	for _, e := range edits {
		text = text[:e.from] + e.text + text[e.to:]
	}
	return text
}

// rewrite returns the files of all packages with mutants, by path from the root, as they are with all mutants: for each mutant
// its function has a copy with the fault, and calls that copy if the process has that mutant. So one build has all mutants,
// and without a mutant it does what the product does. An error says which mutants do not fit.
func rewrite(all []mutant) (map[string]string, []error) {
	rewritten, errs := map[string]string{}, []error(nil)
	for _, file := range filesOf(all) {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		source, edits, copies := string(text), []edit(nil), ""
		heads := map[int]string{} // by offset of a body
		for i, m := range all {
			if m.file != file {
				continue
			}
			f, err := enclosing(set, parsed, source, m.old)
			if err != nil {
				errs = append(errs, fmt.Errorf("mutant %q: %w", m.name, err))
				continue
			}
			number := i + 1
			heads[f.body] += fmt.Sprintf(" if mutantOfThisProcess == %d { %s };", number, f.call(number))
			copies += "\n" + f.copied(source, number, m) + "\n"
		}
		for at, head := range heads {
			edits = append(edits, edit{at, at, head})
		}
		rewritten[file] = apply(source, edits...) + copies
		rewritten[path.Join(path.Dir(file), switchFile)] = fmt.Sprintf(
			"package %s\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\nvar mutantOfThisProcess, _ = strconv.Atoi(os.Getenv(%q))\n", parsed.Name.Name, variable)
	}
	return rewritten, errs
}

func filesOf(all []mutant) []string {
	var files []string
	for _, m := range all {
		if !slices.Contains(files, m.file) {
			files = append(files, m.file)
		}
	}
	return files
}

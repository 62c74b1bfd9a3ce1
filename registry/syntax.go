package registry

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// yamlPosition is how package yaml begins its errors. It counts the lines from 0
// in some, and means where the surrounding mapping begins in others.
var yamlPosition = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntax reports the error that package yaml found in a file.
func (p *parser) syntax(data []byte, err error) {
	problem := yamlProblem(err)
	lines := bytes.SplitAfter(data, []byte("\n"))
	// The line is the one from which on the beginning of the file has this problem.
	line := searchNear(yamlLine(err)-1, len(lines), func(last int) bool {
		return yamlProblem(yamlError(bytes.Join(lines[:last+1], nil))) == problem
	})
	hint := ""
	if line < len(lines) && strings.HasPrefix(strings.TrimLeft(string(lines[line]), " "), "\t") {
		hint = " (indent with spaces, not with tabs)"
	}
	p.report(min(line, len(lines)-1)+1, "", "this is no YAML: "+problem+hint)
}

// searchNear is sort.Search, which is soon done if the result is near a guess.
func searchNear(guess, n int, is func(int) bool) int {
	low := max(min(guess, n)-1, 0)
	if low > 0 && is(low-1) {
		return sort.Search(low-1, is)
	}
	high := low
	for step := 1; high < n && !is(high); step *= 2 {
		low, high = high+1, high+step
	}
	high = min(high, n)
	return low + sort.Search(high-low, func(i int) bool { return is(low + i) })
}

// yamlLine is the line that an error of package yaml names; 0 if it names none.
func yamlLine(err error) int {
	line := 0
	if found := yamlPosition.FindStringSubmatch(err.Error()); found != nil {
		line, _ = strconv.Atoi(found[1])
	}
	return line
}

// yamlProblem is the message of an error of package yaml without its position.
func yamlProblem(err error) string {
	if err == nil {
		return ""
	}
	return yamlPosition.ReplaceAllString(err.Error(), "")
}

// yamlError returns the error that package yaml finds in a file.
func yamlError(data []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var document yaml.Node
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

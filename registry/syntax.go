package registry

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"

	"gopkg.in/yaml.v3"
)

// yamlPosition is how package yaml begins its errors. The line is that of the surrounding
// value in most of them, not the one with the problem.
var yamlPosition = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// openQuote is the problem of a quote without its end, for which yaml names the line of
// its beginning.
const openQuote = "found unexpected end of stream"

// lineReader hands out a text line by line, and so shows how far package yaml has read.
type lineReader struct {
	lines [][]byte
	read  int    // lines that were handed out
	rest  []byte // of the last of them
}

// Read implements io.Reader.
func (r *lineReader) Read(b []byte) (int, error) {
	if len(r.rest) == 0 {
		if r.read == len(r.lines) {
			return 0, io.EOF
		}
		r.rest = r.lines[r.read]
		r.read++
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// syntax reports the error that package yaml found when it had read so far.
func (p *parser) syntax(r *lineReader, err error) {
	const readAhead = 100 // lines, at most
	problem, line := yamlProblem(err), r.read
	if named := yamlPosition.FindStringSubmatch(err.Error()); problem == openQuote && named[1] != "" {
		line, _ = strconv.Atoi(named[1])
		line = min(line, r.read)
	}
	// yaml reads ahead: the line is the first one with which the text has this problem.
	for range readAhead {
		if line <= 1 || yamlProblem(yamlError(r.lines[:line-1])) != problem {
			break
		}
		line--
	}
	hint := ""
	if bytes.HasPrefix(bytes.TrimLeft(r.lines[line-1], " "), []byte("\t")) {
		hint = " (indent with spaces, not with tabs)"
	}
	p.report(line, "", "invalid YAML: "+problem+hint)
}

// yamlProblem is the message of an error of package yaml without its position.
func yamlProblem(err error) string {
	if err == nil {
		return ""
	}
	return yamlPosition.ReplaceAllString(err.Error(), "")
}

// yamlError returns the first error that package yaml finds in a text.
func yamlError(lines [][]byte) error {
	decoder := yaml.NewDecoder(&lineReader{lines: lines})
	for {
		var document yaml.Node
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

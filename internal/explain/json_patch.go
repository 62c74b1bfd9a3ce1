package explain

import "encoding/json"

// Operations of a JSON patch (RFC 6902).
type (
	assertion struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	removal struct {
		Op   string `json:"op"`
		Path string `json:"path"`
	}
)

// test has the patch fail if the object has another value by then.
func test(path string, value any) assertion { return assertion{"test", path, value} }

func replace(path string, value any) assertion { return assertion{"replace", path, value} }

// patch returns the text of a JSON patch, for `kubectl patch --type=json -p`.
func patch(operations ...any) string {
	text, err := json.Marshal(operations)
	if err != nil {
		panic(err) // they are strings and times
	}
	return string(text)
}

package chart

// Ink names a colour of a Theme.
type Ink int

// Inks of texts and lines. Inks of data begin with Data.
const (
	Text  Ink = iota
	Dim       // less important texts
	Alert     // bad news
	Good      // good news
	grid
	shade
	paper
	Data // the first of DataInks inks: Data, Data+1, ...
)

// DataInks is the number of inks for data. Later ones start again with the first.
const DataInks = 8

// Theme has the colours of a picture.
type Theme struct {
	Name   string // light or dark
	colors [Data]string
	data   [DataInks]string
}

// The themes. They have the colours of the other pictures in the documents.
var (
	Light = Theme{
		"light",
		[Data]string{Text: "#1f2328", Dim: "#57606a", Alert: "#c02020", Good: "#208040", grid: "#d0d7de", shade: "#eef1f4", paper: "#ffffff"},
		[DataInks]string{"#1f5fa8", "#6e7781", "#bc4c00", "#d4a017", "#8250df", "#1a7f37", "#bf3989", "#1b7c83"},
	}
	Dark = Theme{
		"dark",
		[Data]string{Text: "#e6edf3", Dim: "#9198a1", Alert: "#ff7b72", Good: "#3fb950", grid: "#30363d", shade: "#161b22", paper: "#0d1117"},
		[DataInks]string{"#58a6ff", "#9aa4ae", "#f0883e", "#e3c341", "#bc8cff", "#3fb950", "#f778ba", "#39c5cf"},
	}
)

// color returns the colour of an ink.
func (t Theme) color(i Ink) string {
	if i < Data {
		return t.colors[i]
	}
	return t.data[(i-Data)%DataInks]
}

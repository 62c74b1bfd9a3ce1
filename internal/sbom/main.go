package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("sbom", flag.ContinueOnError)
	version := flags.String("version", "unknown", "`version` of the program")
	epoch := flags.Int64("epoch", 0, "`seconds` since 1970, the time in the document")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("%d arguments are given, want the path of one binary", flags.NArg())
	}
	binary, err := os.ReadFile(flags.Arg(0))
	if err != nil {
		return err
	}
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return fmt.Errorf("read the modules of %s: %w", flags.Arg(0), err)
	}
	document, err := newDocument(info, binary, *version, time.Unix(*epoch, 0))
	if err != nil {
		return fmt.Errorf("describe %s: %w", flags.Arg(0), err)
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false) // the & of a package URL
	return encoder.Encode(document)
}

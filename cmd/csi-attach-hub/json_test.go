package main

import (
	"encoding/json"
	"net/http"
	"testing"
)

// getJSON reads an answer of the API.
func getJSON(t *testing.T, url string, into any) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		t.Fatalf("%s: %v", url, err)
	}
}

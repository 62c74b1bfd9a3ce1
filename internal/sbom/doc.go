// Command sbom writes the software bill of materials of a Go program: a CycloneDX document with the modules that the Go linker noted in
// the binary. So the document lists what is linked, and not what go.mod requires for tests.
//
// Equal binaries have equal documents: the time is given, and the serial number comes from the binary. The licences of the modules and
// which module requires which are not in a binary, and so not in the document.
package main

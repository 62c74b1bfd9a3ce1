// Package mutants proves that the tests find the faults that would hurt: each mutant is a deliberate fault in the code of the
// product, and names the tests that fail with it. A mutant that no test kills is a missing test. There are about 30, all of faults that
// would lose data or move a volume wrongly.
//
// A mutant replaces a text in the body of one function (rows_test.go). No file in the tree changes: the tests are built
// with `go test -c -overlay`, and with all mutants at once. A function with mutants has a copy for each, and the environment
// variable MUTANT has the number of the mutant whose copy runs. Without it the program is that of the product.
//
// In each run of the tests the package checks that each mutant fits into the code and compiles, and that its killers exist.
// `make mutants` runs each mutant against its killers, after these have passed without one. Each killer of a mutant must fail by
// itself, and not because it runs into a timeout.
//
// A new mutant is a new row of rows_test.go.
package mutants

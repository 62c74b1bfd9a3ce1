package explore

// Model is a world whose states can be enumerated. A state is a value that nobody changes: a step returns a new one,
// which may share memory with the old one. The methods are deterministic and safe for concurrent use.
type Model[S any] interface {
	// Start returns the states in which the world may begin.
	Start() []S
	// Steps returns what may happen next in a state, always in the same order.
	Steps(S) []Step[S]
	// Key appends the encoding of a state to a slice. Two states are the same if their keys are equal, so it leaves out
	// what makes no difference to what may follow, such as the absolute values of counters.
	Key(s S, to []byte) []byte
	// Check returns what is wrong in a state, nil if nothing is.
	Check(S) error
	// Reached reports whether what is wanted has been reached: all is as the users ask for, and at rest.
	Reached(S) bool
}

// Step is one thing that may happen in a state.
type Step[S any] struct {
	// Name says what happens, for a reader of a trace. Each step of a state has another name.
	Name string
	// Fault: something breaks, or a user changes what is wanted. From each state, what is wanted must be within reach
	// by steps that are no faults.
	Fault bool
	// Do returns the state after the step. An error is a fault that shows in the step itself.
	Do func() (S, error)
}

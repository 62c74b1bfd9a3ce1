package tlsfiles

// Follower finds out whether files have changed. It belongs to one goroutine.
type Follower struct {
	files Files
	used  *Material // that is in use
	seen  *Material // by the last look, if it is another one; else nil
}

// NewFollower returns a Follower of the files that the material in use came from.
func NewFollower(used *Material) *Follower {
	return &Follower{files: used.files, used: used}
}

// Look reads the files. It returns what is in them once that is whole, another than
// what is in use, and the same as at the last look: the files may be written one
// after the other. From then on that is in use. It returns nil if there is nothing new,
// and what is wrong with the files if they are not whole.
func (f *Follower) Look() (*Material, error) {
	now, err := f.files.Load()
	if err != nil {
		f.seen = nil
		return nil, err
	}
	switch {
	case now.Same(f.used):
		f.seen = nil
	case f.seen == nil || !now.Same(f.seen):
		f.seen = now
	default:
		f.used, f.seen = now, nil
		return now, nil
	}
	return nil, nil
}

package fakecsi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

const (
	opCreate = "create"
	opDelete = "delete"
	opAttach = "attach"
	opDetach = "detach"
)

// Record is one change of the storage, one line of a StateFile.
type Record struct {
	Op         string      `json:"op"`
	Volume     string      `json:"volume"`
	Node       string      `json:"node,omitempty"`
	Attachment *Attachment `json:"attachment,omitempty"`
	Name       string      `json:"name,omitempty"`
	Capacity   int64       `json:"capacity,omitempty"`
}

// StateFile keeps the storage of a Backend in a file, so that it survives the end
// of the process at any moment, SIGKILL included: a change is in the file before
// the call that made it is answered. It is not synced to the disk, so it does
// not survive the end of the machine.
//
// The file holds one JSON record per line and is only appended to. It is
// rewritten as the shortest list when it is opened and when it has grown to a
// multiple of what is live.
type StateFile struct {
	path string

	pendingMu sync.Mutex
	pending   []Record // guarded by pendingMu: changes made, not yet written

	// fileMu guards the fields below and is held while writing: it is what puts
	// the records into the file in the order of the changes. No caller holds
	// another lock while it waits for this one.
	fileMu sync.Mutex
	file   *os.File
	state  *storage // what the file says
	lines  int      // in the file
	live   int      // of them, after the last rewrite
	err    error    // the first failed write: from then on nothing is durable
}

// OpenStateFile reads the file at path, which need not exist, and makes it ready
// to be appended to. A last line that was cut off by the end of the writing
// process is dropped; any other line that makes no sense is an error. One
// StateFile is for one Backend; the caller closes it when that is no longer used.
func OpenStateFile(path string) (*StateFile, error) {
	j := &StateFile{path: path, state: newStorage()}
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read state: %w", err)
	}
	for n := 1; len(data) > 0; n++ {
		line, rest, whole := bytes.Cut(data, []byte("\n"))
		if !whole {
			break // cut off while it was written: that call was never answered
		}
		data = rest
		var r Record
		err := json.Unmarshal(line, &r)
		if err == nil {
			err = j.state.apply(r)
		}
		if err != nil {
			return nil, fmt.Errorf("read state: %s:%d: %w: repair or remove the file", path, n, err)
		}
	}
	if err := j.rewrite(); err != nil {
		return nil, err
	}
	return j, nil
}

// Close closes the file. Changes after it fail.
func (j *StateFile) Close() error {
	j.fileMu.Lock()
	defer j.fileMu.Unlock()
	if j.err == nil {
		j.err = fs.ErrClosed
	}
	return j.file.Close()
}

// restore is a copy of what the file says, to start a Backend with.
func (j *StateFile) restore() *storage {
	j.fileMu.Lock()
	defer j.fileMu.Unlock()
	s := newStorage()
	for _, r := range j.state.records() {
		_ = s.apply(r) // records of a storage always apply
	}
	return s
}

// add notes changes in their order. It does not write: flush does.
func (j *StateFile) add(rs []Record) {
	j.pendingMu.Lock()
	defer j.pendingMu.Unlock()
	j.pending = append(j.pending, rs...)
}

// flush returns when every change noted before the call is in the file,
// whichever caller wrote it.
func (j *StateFile) flush() error {
	j.fileMu.Lock()
	defer j.fileMu.Unlock()
	j.pendingMu.Lock()
	batch := j.pending
	j.pending = nil
	j.pendingMu.Unlock()
	if j.err != nil || len(batch) == 0 {
		return j.err
	}
	j.err = j.append(batch)
	if j.err == nil && j.lines > 1000+4*j.live {
		j.err = j.rewrite()
	}
	return j.err
}

func (j *StateFile) append(batch []Record) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	for _, r := range batch {
		if err := enc.Encode(r); err != nil {
			return fmt.Errorf("write state: %w", err)
		}
		if err := j.state.apply(r); err != nil {
			return fmt.Errorf("write state: %w", err)
		}
	}
	if _, err := j.file.Write(buf.Bytes()); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	j.lines += len(batch)
	return nil
}

// rewrite replaces the file by the shortest one with the same meaning. Either
// the old or the new file is there at any moment.
func (j *StateFile) rewrite() error {
	tmp, err := os.OpenFile(j.path+".tmp", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	records := j.state.records()
	w := bufio.NewWriter(tmp)
	enc := json.NewEncoder(w)
	for _, r := range records {
		if err = enc.Encode(r); err != nil {
			break
		}
	}
	if err = errors.Join(err, w.Flush()); err == nil {
		err = os.Rename(tmp.Name(), j.path)
	}
	if err != nil {
		return fmt.Errorf("write state: %w", errors.Join(err, tmp.Close(), os.Remove(tmp.Name())))
	}
	if j.file != nil {
		_ = j.file.Close() // replaced: nothing more is read from it
	}
	j.file, j.lines, j.live = tmp, len(records), len(records)
	return nil
}

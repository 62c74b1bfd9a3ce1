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

// StateFile keeps the storage of a Backend in a file, so that the storage survives
// the end of the process, SIGKILL included: the file has a change before the call
// that made it is answered. The file is not synced to the disk, so it does not
// survive a crash of the machine.
//
// The file holds one JSON record per line and is only appended to. It is
// rewritten as the shortest list when it is opened and when it has grown to a
// multiple of that list.
type StateFile struct {
	path string

	pendingMu sync.Mutex
	pending   []Record // guarded by pendingMu: changes that are not yet written

	// fileMu guards the fields below. flush holds it while it writes, so that the
	// file has the records in the order of the changes. No caller holds another
	// lock while it waits for this one.
	fileMu sync.Mutex
	file   *os.File
	state  *storage // the content of the file
	lines  int      // in the file
	live   int      // lines after the last rewrite
	err    error    // of the first failed write: every later flush returns it
}

// OpenStateFile reads the file at path, which need not exist, and opens it for
// changes. It drops an incomplete last line, which a process wrote when it ended; any
// other line that is no record is an error. One StateFile is for one Backend. The
// caller closes it after the last use of the Backend.
func OpenStateFile(path string) (*StateFile, error) {
	j := &StateFile{path: path, state: newStorage()}
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read state: %w", err)
	}
	for n := 1; len(data) > 0; n++ {
		line, rest, whole := bytes.Cut(data, []byte("\n"))
		if !whole {
			break // incomplete: its call was never answered
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

// restore returns a copy of the storage in the file, for a new Backend.
func (j *StateFile) restore() *storage {
	j.fileMu.Lock()
	defer j.fileMu.Unlock()
	s := newStorage()
	for _, r := range j.state.records() {
		_ = s.apply(r) // records of a storage always apply
	}
	return s
}

// add keeps changes, in order, for flush to write.
func (j *StateFile) add(rs []Record) {
	j.pendingMu.Lock()
	defer j.pendingMu.Unlock()
	j.pending = append(j.pending, rs...)
}

// flush blocks until the file has every change that was added before this call,
// whichever caller writes them.
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

// rewrite replaces the file by the shortest file of the same storage, with a rename:
// at any moment the old or the new file is there.
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
		_ = j.file.Close() // replaced, and complete
	}
	j.file, j.lines, j.live = tmp, len(records), len(records)
	return nil
}

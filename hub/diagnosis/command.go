package diagnosis

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Commands returns command lines, given as their words, as text to be pasted into a POSIX shell. It returns nil if a word
// has a character that cannot be printed: the reader would not see what runs, and the terminal might act on it.
func Commands(lines ...[]string) (all []string) {
	for _, words := range lines {
		words = slices.Clone(words)
		for i, word := range words {
			if !plainWord.MatchString(word) {
				words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
			}
		}
		all = append(all, strings.Join(words, " "))
	}
	if !Printable(all...) {
		return nil
	}
	return all
}

// Printable reports whether commands have only characters that a terminal shows as they are.
func Printable(commands ...string) bool {
	return !strings.ContainsFunc(strings.Join(commands, ""), func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) })
}

// plainWord is a word that has no meaning of its own for a shell.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+,./:-][A-Za-z0-9_@%+=,./:-]*$`)

// DetachCommands returns commands that detach a PersistentVolume of a driver from a node where it is
// dangling. They create a VolumeAttachment, so that the hub publishes the volume there once more, which the driver
// answers with success (CSI spec: ControllerPublishVolume is idempotent), and delete it, so that the hub unpublishes the
// volume. They need kubectl and the right to create, watch and delete VolumeAttachments. DetachCommands returns nil
// without a node or a PersistentVolume, and if a name has a character that cannot be printed.
func DetachCommands(driver, node, volume string) []string {
	if driver == "" || node == "" || volume == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(driver + "\x00" + node + "\x00" + volume))
	name := "detach-" + hex.EncodeToString(sum[:8])
	object, _ := json.Marshal(map[string]any{
		"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
		"metadata": map[string]string{"name": name},
		"spec":     map[string]any{"attacher": driver, "nodeName": node, "source": map[string]string{"persistentVolumeName": volume}},
	}) // no error: these are strings
	commands := Commands(
		[]string{"printf", "%s", string(object)},
		[]string{"kubectl", "wait", "--for=jsonpath={.status.attached}=true", "volumeattachment/" + name, "--timeout=2m"},
		[]string{"kubectl", "delete", "volumeattachment", name},
	)
	if commands != nil {
		commands[0] += " | kubectl create -f -"
	}
	return commands
}

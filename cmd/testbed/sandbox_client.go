package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// sandboxVariable is the environment variable that has the path of the sandbox's socket.
const sandboxVariable = "SANDBOX"

// newSandboxVerbCommands makes a subcommand of each verb.
func newSandboxVerbCommands() []*cobra.Command {
	var commands []*cobra.Command
	for _, v := range verbs {
		commands = append(commands, &cobra.Command{
			Use:   v.name + " " + v.object,
			Short: v.short,
			Args:  cobra.ExactArgs(len(strings.Fields(v.object))),
			RunE: func(cmd *cobra.Command, args []string) error {
				return askSandbox(cmd.Context(), v.name, args[0], strings.Join(args[1:], ""), cmd.OutOrStdout())
			},
		})
	}
	return commands
}

// askSandbox asks the sandbox of the environment to carry out a verb, and prints its answer.
func askSandbox(ctx context.Context, verb, object, body string, out io.Writer) error {
	socket := os.Getenv(sandboxVariable)
	if socket == "" {
		return fmt.Errorf("the environment variable %s is not set: source the env file that the sandbox has printed", sandboxVariable)
	}
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://sandbox/"+verb+"/"+url.PathEscape(object), strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("reach the sandbox: %w: is it still running?", err)
	}
	answer, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return fmt.Errorf("read the sandbox's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(strings.TrimSpace(string(answer)))
	}
	_, err = out.Write(answer)
	return err
}

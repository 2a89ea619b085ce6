package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// mastersTopic is the help topic with the flags that most commands share.
const mastersTopic = "masters"

const mastersHelp = `All commands that ask masters have these flags. Those for TLS and the user have the names of redis-cli. Each has a variable of the environment, in brackets, which counts if the flag is not given. An empty variable counts as not set: an empty prefix is --prefix '' alone. A password comes from the environment or from a URL, because every user of the machine could read it from a flag.`

// newMastersTopic makes the help topic. It is no command that can be run.
func newMastersTopic() *cobra.Command {
	cmd := &cobra.Command{Use: mastersTopic, Short: "Flags for masters, TLS and the user", Long: mastersHelp}
	cmd.Flags().SortFlags = false
	new(connection).register(cmd.Flags())
	return cmd
}

// help writes the help of a command, wrapped at the width of the terminal: 80 without one.
func help(cmd *cobra.Command, _ []string) {
	out := cmd.OutOrStdout()
	width, _ := sizeOf(terminalOf(out))
	for i, part := range strings.Split(cmp.Or(cmd.Long, cmd.Short), "\n\n") {
		if i > 0 {
			fmt.Fprintln(out)
		}
		if !isTable(part) {
			part = wrapped("", part, width)
		}
		fmt.Fprintln(out, strings.TrimRight(part, "\n"))
	}
	if cmd.Runnable() {
		fmt.Fprintf(out, "\nUsage:\n  %s\n", cmd.UseLine())
	}
	if cmd.HasExample() {
		fmt.Fprintf(out, "\nExamples:\n%s\n", cmd.Example)
	}
	fmt.Fprintln(out)
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			fmt.Fprintf(out, "  %-11s %s\n", sub.Name(), sub.Short)
		}
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintln(out)
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.SortFlags = false
	others := false
	shared := newMastersTopic().Flags()
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if cmd.Name() != mastersTopic && f.Name != "masters" && shared.Lookup(f.Name) != nil {
			others = true
			return
		}
		flags.AddFlag(f)
	})
	fmt.Fprint(out, flags.FlagUsagesWrapped(width))
	if others || !cmd.HasParent() {
		fmt.Fprintf(out, "Flags for masters, TLS and the user: redlock help %s\n", mastersTopic)
	}
}

// isTable reports whether a part of a help is a table, or an example.
func isTable(part string) bool { return strings.HasPrefix(part, " ") || strings.HasPrefix(part, "\t") }

func newVersion(version string) *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Args: noArgs, DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "redlock", version)
			return err
		}}
}

// newMan makes the command that writes the manual pages. It is for .ci/build, and hidden.
func newMan() *cobra.Command {
	return &cobra.Command{Use: "man DIR", Short: "Write the manual pages", Hidden: true, Args: wants(1, "where to? give a DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := os.MkdirAll(args[0], 0o777)
			for _, of := range append(cmd.Root().Commands(), cmd.Root()) {
				if err == nil && !of.Hidden {
					err = os.WriteFile(filepath.Join(args[0], manName(of)+".1"), []byte(manPage(of)), 0o666)
				}
			}
			return err
		}}
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

var roff = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'")

// manPage returns the manual page of a command.
func manPage(cmd *cobra.Command) string {
	var b strings.Builder
	name, examples := manName(cmd), cmd.Example
	fmt.Fprintf(&b, ".TH %s 1\n.SH NAME\n%s \\- %s\n", strings.ToUpper(name), roff.Replace(name), roff.Replace(cmd.Short))
	if cmd.Runnable() {
		fmt.Fprintf(&b, ".SH SYNOPSIS\n%s\n", roff.Replace(cmd.UseLine()))
	}
	fmt.Fprint(&b, ".SH DESCRIPTION\n")
	for part := range strings.SplitSeq(cmp.Or(cmd.Long, cmd.Short), "\n\n") {
		if isTable(part) {
			part = ".nf\n" + roff.Replace(part) + "\n.fi"
		} else {
			part = roff.Replace(part)
		}
		fmt.Fprintf(&b, ".PP\n%s\n", part)
	}
	fmt.Fprint(&b, ".SH OPTIONS\n")
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		short := ""
		if f.Shorthand != "" {
			short = "-" + f.Shorthand + ", "
		}
		value, usage := pflag.UnquoteUsage(f)
		fmt.Fprintf(&b, ".TP\n%s\n%s\n", roff.Replace(strings.TrimSpace(short+"--"+f.Name+" "+value)), roff.Replace(usage))
	})
	if examples != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff.Replace(examples))
	}
	fmt.Fprint(&b, ".SH SEE ALSO\n")
	for _, other := range append(cmd.Commands(), cmd.Root()) {
		if !other.Hidden && other != cmd && (other == cmd.Root() || other.Parent() == cmd.Root()) {
			fmt.Fprintf(&b, ".BR %s (1)\n", roff.Replace(manName(other)))
		}
	}
	return b.String()
}

// withoutPackage makes the completion script of cobra work where the package bash-completion is
// missing, whose functions it calls: it splits the line at blanks.
const withoutPackage = `
if ! declare -F _get_comp_words_by_ref >/dev/null; then
    __redlock_init_completion()
    {
        COMPREPLY=()
        local IFS=$' \t\n' line=${COMP_LINE:0:COMP_POINT}
        read -ra words <<<"$line"
        [[ $line == *[[:space:]] ]] && words+=("")
        cword=$((${#words[@]} - 1))
        cur=${words[cword]}
        prev=${words[cword - 1]}
    }
fi
`

const bashHelp = `Generate the completion script for bash. It works with the package bash-completion and without it.

Load it in the present shell, or for all that follow, as root:

  source <(redlock completion bash)
  redlock completion bash > /etc/bash_completion.d/redlock`

// addCompletion adds the command completion of cobra, whose script for bash needs no package.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	all, _, _ := root.Find([]string{"completion"})
	all.Args, all.RunE = noArgs, root.RunE // otherwise a shell that it does not know gets the help, and code 0
	for _, cmd := range all.Commands() {
		cmd.Args = noArgs // with code 64
	}
	bash, _, _ := root.Find([]string{"completion", "bash"})
	script := bash.RunE
	bash.Long = bashHelp
	bash.RunE = func(cmd *cobra.Command, args []string) error {
		err := script(cmd, args)
		if err == nil {
			_, err = io.WriteString(cmd.OutOrStdout(), withoutPackage)
		}
		return err
	}
}

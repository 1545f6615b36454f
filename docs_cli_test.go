package modelgate_test

import (
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagsOf returns the expected rows of the table for flags: name, type and default.
func flagsOf(flags *pflag.FlagSet) (rows []string) {
	flags.VisitAll(func(f *pflag.Flag) {
		value := "none"
		if f.DefValue != "" {
			value = "`" + f.DefValue + "`"
		}
		if f.Name != "help" {
			rows = append(rows, "`--"+f.Name+"` "+f.Value.Type()+" "+value)
		}
	})
	slices.Sort(rows)
	return rows
}

// TestTheReferenceHasEveryCommand compares the sections of docs/reference/cli.md with the
// commands, and their tables with the flags, in both directions. Each command must accept its
// example.
func TestTheReferenceHasEveryCommand(t *testing.T) {
	t.Parallel()
	root := &cobra.Command{Use: "modelgate"}
	caddycmd.Commands()["modelgate"].CobraFunc(root)
	sections := sectionsOf(read(t, "docs/reference/cli.md"))
	check := func(heading string, flags *pflag.FlagSet) {
		var have []string
		for _, row := range rowsOf(sections[heading], "Flag", "Type", "Default") {
			have = append(have, strings.Join(row[:3], " "))
		}
		slices.Sort(have)
		if want := flagsOf(flags); !slices.Equal(have, want) {
			t.Errorf("%s: the page has the flags\n%q, the command has\n%q", heading, have, want)
		}
	}
	check("Flags of all commands", root.PersistentFlags())
	commands := make(map[string]bool)
	var walk func(cmd *cobra.Command, path string)
	walk = func(cmd *cobra.Command, path string) {
		path += " " + cmd.Use
		for _, sub := range cmd.Commands() {
			walk(sub, path)
		}
		if cmd.HasSubCommands() {
			return
		}
		commands[path] = true
		section, there := sections[path]
		if !there {
			t.Errorf("the page has no section %s", path)
			return
		}
		check(path, cmd.LocalNonPersistentFlags())
		examples := codeOf(section, "sh")
		if len(examples) != 1 {
			t.Fatalf("%s: %d examples", path, len(examples))
		}
		words := regexp.MustCompile(`'[^']*'|\S+`).FindAllString(strings.ReplaceAll(examples[0], "\\\n", ""), -1)
		found, rest, err := root.Find(words[2:])
		if err == nil {
			err = found.ParseFlags(rest)
		}
		if err == nil {
			err = found.Args(found, found.Flags().Args())
		}
		if err != nil || found != cmd {
			t.Errorf("%s: the example %q is not accepted: %v", path, examples[0], err)
		}
	}
	for _, cmd := range root.Commands() {
		walk(cmd, "caddy modelgate")
	}
	for heading := range sections {
		if strings.HasPrefix(heading, "caddy modelgate ") && !commands[heading] {
			t.Errorf("the command %s does not exist", heading)
		}
	}
	var codes []string
	for _, row := range rowsOf(sections["Exit codes"], "Code") {
		codes = append(codes, row[0])
	}
	want := []string{"0"}
	for _, found := range regexp.MustCompile(`(?m)^\texit[A-Z]\w+\s+= ([0-9])$`).FindAllStringSubmatch(read(t, "caddymodule/cli/cli.go"), -1) {
		want = append(want, found[1])
	}
	if !slices.Equal(codes, want) {
		t.Errorf("the page has the exit codes %v, the commands %v", codes, want)
	}
}

// TestTheGuidesNameRealCommands checks that each `caddy modelgate …` of the README and the guides
// is a command with these flags.
func TestTheGuidesNameRealCommands(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("docs/guide/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	line := regexp.MustCompile("caddy modelgate ([a-z][^`\n|;&>\"#$)]*)")
	seen := 0
	for _, page := range append(pages, "README.md", "README.zh.md") {
		for _, match := range line.FindAllStringSubmatch(read(t, page), -1) {
			seen++
			root := &cobra.Command{Use: "modelgate"} // flags keep parsed values
			caddycmd.Commands()["modelgate"].CobraFunc(root)
			words := regexp.MustCompile(`'[^']*'|\S+`).FindAllString(match[1], -1)
			found, rest, err := root.Find(words)
			if err == nil && found == root {
				err = errors.New("unknown command")
			}
			if err == nil && !slices.Contains(rest, "…") && !slices.Contains(rest, `\`) {
				err = found.ParseFlags(rest)
			}
			if err != nil {
				t.Errorf("%s: caddy modelgate %s: %v", page, match[1], err)
			}
		}
	}
	if seen < 50 {
		t.Errorf("only %d commands were found", seen)
	}
}

package caddymodule

import (
	"cmp"
	"regexp"
	"runtime"
	"runtime/debug"

	"github.com/caddyserver/caddy/v2"
)

// deploy/release sets these variables when it links the program.
var version, commit, date string

// Build describes the sources and tools of this program.
type Build struct {
	Version string `json:"version"`          // a tag, such as v1.2.3, or "devel" without one
	Commit  string `json:"commit,omitempty"` // with "-dirty" if the sources differed; empty if it is unknown
	Date    string `json:"date,omitempty"`   // when the commit was made, RFC 3339
	Caddy   string `json:"caddy"`            // version of Caddy
	Go      string `json:"go"`               // version of Go
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

// untagged finds the commit in Go's version of a commit before the first tag.
var untagged = regexp.MustCompile(`^v0\.0\.0-[0-9]{14}-([0-9a-f]{12})`)

// ReadBuild returns the build of this program, from the linker flags and the build
// information of Go.
func ReadBuild() Build {
	b := Build{Version: version, Commit: commit, Date: date, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	b.Caddy, _ = caddy.Version()
	if info, ok := debug.ReadBuildInfo(); ok {
		b.read(info)
	}
	if b.Version == "" || b.Version == "(devel)" {
		b.Version = "devel"
	}
	return b
}

// read sets fields from the build information of this module.
func (b *Build) read(info *debug.BuildInfo) {
	tag := ""
	if info.Main.Path == ModulePath {
		tag = info.Main.Version
		of := make(map[string]string)
		for _, setting := range info.Settings {
			of[setting.Key] = setting.Value
		}
		if b.Commit == "" && of["vcs.revision"] != "" {
			b.Commit, b.Date = of["vcs.revision"], of["vcs.time"]
			if of["vcs.modified"] == "true" {
				b.Commit += "-dirty"
			}
		}
	}
	for _, dependency := range info.Deps {
		if dependency.Path == ModulePath {
			tag = dependency.Version
		}
	}
	if found := untagged.FindStringSubmatch(tag); found != nil {
		tag = ""
		if b.Commit == "" {
			b.Commit = found[1]
		}
	}
	b.Version = cmp.Or(b.Version, tag)
}

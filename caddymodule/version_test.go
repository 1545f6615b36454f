package caddymodule

import (
	"runtime/debug"
	"testing"
)

func TestTheVersionIsThatOfTheTag(t *testing.T) {
	t.Parallel()
	settings := []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-11-23T16:52:47Z"}, {Key: "vcs.modified", Value: "true"}}
	main := func(path, version string) debug.Module { return debug.Module{Path: path, Version: version} }
	for name, c := range map[string]struct {
		linked string
		info   debug.BuildInfo
		want   Build
	}{
		"a release":            {"v1.2.3", debug.BuildInfo{Main: main(ModulePath, "v1.2.3"), Settings: settings[:2]}, Build{Version: "v1.2.3", Commit: "abc", Date: "2026-11-23T16:52:47Z"}},
		"a checkout":           {"", debug.BuildInfo{Main: main(ModulePath, "v0.0.0-00010101000000-000000000000+dirty"), Settings: settings}, Build{Commit: "abc-dirty", Date: "2026-11-23T16:52:47Z"}},
		"a checkout at a tag":  {"", debug.BuildInfo{Main: main(ModulePath, "v1.2.3")}, Build{Version: "v1.2.3"}},
		"xcaddy at a tag":      {"", debug.BuildInfo{Main: main("caddy", "(devel)"), Settings: settings, Deps: []*debug.Module{{Path: ModulePath, Version: "v1.2.3"}}}, Build{Version: "v1.2.3"}},
		"xcaddy at a commit":   {"", debug.BuildInfo{Main: main("caddy", ""), Deps: []*debug.Module{{Path: ModulePath, Version: "v0.0.0-20261123165247-be06e336dd8f"}}}, Build{Commit: "be06e336dd8f"}},
		"without information":  {"", debug.BuildInfo{}, Build{}},
		"a linked version won": {"v2.0.0", debug.BuildInfo{Main: main(ModulePath, "v1.2.3")}, Build{Version: "v2.0.0"}},
	} {
		b := Build{Version: c.linked}
		if b.read(&c.info); b != c.want {
			t.Errorf("%s: %+v, want %+v", name, b, c.want)
		}
	}
	if b := ReadBuild(); b.Version != "devel" || b.Caddy == "" || b.Go == "" {
		t.Errorf("the build of a test is %+v", b)
	}
}

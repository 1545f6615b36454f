package modelcall

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

// clientTools are the types, without dates, of tools that the caller runs; mcp_toolset, which
// only selects from mcp_servers; and namespace, which only groups tools that have types of
// their own.
var clientTools = []string{
	"mcp_toolset", "function", "custom", "bash", "text_editor", "computer", "computer_use_preview", "memory", "local_shell", "apply_patch",
	"computer_toolset", "browser_toolset", "namespace",
}

// isClientTool reports whether the caller runs the tool. A tool_search and a shell say in a
// member who runs them; without it, the vendor does.
func (o *objectNotes) isClientTool(name string) bool {
	switch name {
	case "tool_search":
		return o.execution == "client"
	case "shell":
		return o.local
	}
	return slices.Contains(clientTools, name)
}

// isClientEnvironment reports whether n is the environment of a tool that the caller runs: one
// of the type local, or the name of a system that the caller shows to the model.
func isClientEnvironment(body []byte, n strictjson.Note) bool {
	if n.Kind == strictjson.String {
		kind := toolName(typeAt(body, n.Object))
		return kind == "computer" || kind == "computer_use_preview"
	}
	return isLocal(body, n.Start)
}

// isLocal reports whether the environment at this offset is on the caller's side.
func isLocal(body []byte, at int) bool { return typeAt(body, at) == "local" }

// typeAt returns the type of the object at this offset, or "". Its table must have the type as
// a deciding member, so that there are not two.
func typeAt(body []byte, at int) string {
	var object struct {
		Type string `json:"type"`
	}
	if json.NewDecoder(bytes.NewReader(body[at:])).Decode(&object) != nil {
		return ""
	}
	return object.Type
}

// isMCPTool reports whether raw is a tool as an MCP server lists it. It has no type, and no
// member by which a vendor would run another tool.
func isMCPTool(raw []byte) bool {
	var tool struct {
		Name        string         `json:"name"`
		Description string         `json:"description"`
		InputSchema strictjson.Raw `json:"input_schema"`
		Annotations strictjson.Raw `json:"annotations"`
	}
	return strictjson.Decode(raw, &tool) == nil && tool.Name != ""
}

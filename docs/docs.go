// Package docs embeds the documents of this folder that the gateway serves itself. Package
// handlers/docs serves them.
package docs

import _ "embed" // for the documents

// OpenAPI describes all routes, as OpenAPI 3.1 in YAML.
//
//go:embed openapi.yaml
var OpenAPI []byte

// LLMs is a summary for coding assistants, in the form of https://llmstxt.org.
//
//go:embed llms.txt
var LLMs []byte

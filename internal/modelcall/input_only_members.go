package modelcall

import "math"

// This file has the members of the routes whose answers have no output that is charged.

// The members of POST /v1/embeddings; see docs/reference/calls.md#embeddings.
var embeddingsMembers = bodyTable(append(
	each(rule{}, "dimensions", "encoding_format", "input_type", "task", "late_chunking", "truncate", "truncation", "normalized",
		"embedding_type", "embedding_types", "output_dimension", "output_dtype"),
	modelMember,
	textOrTokens("input"),
	rule{Name: "messages", Note: noteUnknown, Members: tableWithState(chatContent)}, // vLLM
)...)

// The members of POST /v1/moderations; see docs/reference/calls.md#moderations.
var moderationsMembers = bodyTable(
	rule{Name: "model", Kinds: text | null, Deciding: true, Slot: slotModel},
	rule{Name: "input", Kinds: text | array, Elem: text | object, Required: true, Deciding: true, Members: contentPart},
)

// The members of POST /v1/rerank and /v2/rerank; see docs/reference/calls.md#rerank.
var rerankMembers = bodyTable(append(
	// Searching more chunks of a document costs no more than searchUnits reserves for its text.
	each(rule{}, "top_n", "top_k", "return_documents", "max_tokens_per_doc", "max_chunks_per_doc", "rank_fields", "truncation"),
	modelMember,
	rule{Name: "priority", Kinds: integer, Min: 0, Max: math.MaxInt64}, // 0, the default, is the highest
	rule{Name: "query", Kinds: text, Required: true, Deciding: true, Slot: slotQuery},
	rule{Name: "documents", Kinds: array, Elem: text | object, Required: true, Deciding: true, Slot: slotDocuments, Members: contentPart},
)...)

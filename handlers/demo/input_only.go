package demo

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"hash/fnv"
	"math"
	"slices"
	"strings"
)

// This file has the endpoints whose answers have no output tokens: embeddings, moderations, rerank.

// defaultDimensions is the number of dimensions of an embedding if the request names none, and
// maxDimensions is the largest number that a request may name.
const (
	defaultDimensions = 16
	maxDimensions     = 4096
)

// readTexts reads the input of embeddings and of moderations: a text, tokens, or an array of either.
func (q *request) readTexts() error {
	var parts []struct{ Text string }
	var lists [][]int
	var tokens []int
	switch {
	case len(q.Input) == 0:
		return missing("input")
	case json.Unmarshal(q.Input, &q.Prompt) == nil && len(q.Prompt) > 0:
	case json.Unmarshal(q.Input, &tokens) == nil && len(tokens) > 0:
		q.Prompt, q.tokenCounts = list{""}, []int{len(tokens)}
	case json.Unmarshal(q.Input, &lists) == nil && len(lists) > 0:
		q.Prompt = make(list, len(lists))
		for _, one := range lists {
			q.tokenCounts = append(q.tokenCounts, len(one))
		}
	case json.Unmarshal(q.Input, &parts) == nil && len(parts) > 0:
		q.Prompt = nil
		for _, p := range parts {
			q.Prompt = append(q.Prompt, p.Text)
		}
	default:
		return invalid("input", "input: must be a text, tokens, or an array of either.")
	}
	return nil
}

// answerEmbeddings answers /v1/embeddings. Equal texts have equal embeddings.
func answerEmbeddings(q *request, r simulation) (*answer, error) {
	dimensions := cmp.Or(q.Dimensions, defaultDimensions)
	if dimensions < 1 || dimensions > maxDimensions {
		return nil, invalid("dimensions", "dimensions: must be from 1 to %d.", maxDimensions)
	}
	data := make([]object, len(q.Prompt))
	for i, text := range q.Prompt {
		vector := embed(text, dimensions)
		value := any(vector)
		if q.EncodingFormat == "base64" {
			var raw []byte
			for _, x := range vector {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
			}
			value = base64.StdEncoding.EncodeToString(raw)
		}
		data[i] = object{"object", "embedding", "index", i, "embedding", value}
	}
	return &answer{whole: object{"object", "list", "data", data, "model", q.Model, "usage", q.inputUsage(r)}}, nil
}

// embed returns the embedding of a text, a vector of length one. Each word adds to the dimension that
// its hash selects.
func embed(text string, dimensions int) []float32 {
	vector := make([]float32, dimensions)
	for _, word := range append(strings.Fields(strings.ToLower(text)), "") {
		h := fnv.New32a()
		h.Write([]byte(word))
		vector[h.Sum32()%uint32(dimensions)]++
	}
	length := float32(0)
	for _, x := range vector {
		length += x * x
	}
	length = float32(math.Sqrt(float64(length)))
	for i := range vector {
		vector[i] /= length
	}
	return vector
}

// inputUsage returns the usage of an answer without output, or absent if it is not reported.
func (q *request) inputUsage(r simulation) any {
	if r.noUsage {
		return absent
	}
	n := 0
	for _, count := range q.tokenCounts {
		n += count
	}
	for _, text := range q.Prompt {
		n += tokens(text)
	}
	return object{"prompt_tokens", n, "total_tokens", n}
}

var moderationCategories = []string{
	"harassment", "harassment/threatening", "hate", "hate/threatening", "illicit", "illicit/violent",
	"self-harm", "self-harm/instructions", "self-harm/intent", "sexual", "sexual/minors", "violence", "violence/graphic",
}

// answerModerations answers /v1/moderations. Nothing is flagged.
func answerModerations(q *request, _ simulation) (*answer, error) {
	size := 2 * len(moderationCategories)
	categories, scores, types := make(object, 0, size), make(object, 0, size), make(object, 0, size)
	for _, name := range moderationCategories {
		categories, scores, types = append(categories, name, false), append(scores, name, 0.0), append(types, name, []string{"text"})
	}
	results := slices.Repeat([]object{{
		"flagged", false, "categories", categories, "category_scores", scores, "category_applied_input_types", types,
	}}, len(q.Prompt))
	return &answer{whole: object{"id", newID("modr-"), "model", q.Model, "results", results}}, nil
}

// readDocuments sets the prompts of a rerank request: the query, then the documents.
func (q *request) readDocuments() error {
	switch {
	case q.Query == "":
		return missing("query")
	case len(q.Documents) == 0:
		return missing("documents")
	}
	q.Prompt = list{q.Query}
	for _, raw := range q.Documents {
		text, document := "", struct{ Text string }{}
		if json.Unmarshal(raw, &text) != nil {
			if json.Unmarshal(raw, &document) != nil {
				return invalid("documents", "documents: each must be a text, or an object with text.")
			}
			text = document.Text
		}
		q.Prompt = append(q.Prompt, text)
	}
	return nil
}

// answerRerank answers /v1/rerank and /v2/rerank. The score of a document is the share of the query's
// words that it contains.
func answerRerank(q *request, r simulation) (*answer, error) {
	words := strings.Fields(strings.ToLower(q.Query))
	type ranked struct {
		index int
		score float64
	}
	var ranking []ranked
	for i, document := range q.Prompt[1:] {
		found := 0
		for _, word := range words {
			if strings.Contains(strings.ToLower(document), word) {
				found++
			}
		}
		ranking = append(ranking, ranked{i, float64(found) / float64(max(len(words), 1))})
	}
	slices.SortStableFunc(ranking, func(a, b ranked) int { return cmp.Compare(b.score, a.score) })
	if q.TopN != nil {
		ranking = ranking[:min(max(*q.TopN, 1), len(ranking))]
	}
	results := make([]object, len(ranking))
	for i, d := range ranking {
		results[i] = object{"index", d.index, "relevance_score", d.score, "document", object{"text", q.Prompt[d.index+1]}}
	}
	return &answer{whole: object{"id", newID("rerank-"), "model", q.Model, "results", results, "usage", q.inputUsage(r)}}, nil
}

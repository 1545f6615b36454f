// Notes answers a question from a few notes: it finds the note that is nearest to the question, asks
// a model with it, and draws a picture of the answer into the file of its first argument.
package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"log"
	"os"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
)

var notes = []string{
	"The lighthouse was built in 1861, of granite.",
	"Its light is seen from 21 miles.",
	"The keeper's daughter saved nine people in 1838.",
}

func main() {
	log.SetFlags(0)
	question := "How far is its light seen?"
	ctx := context.Background()
	client := openai.NewClient()

	embedded, err := client.Embeddings.New(ctx, openai.EmbeddingNewParams{
		Model: openai.EmbeddingModelTextEmbedding3Small,
		Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: append([]string{question}, notes...)},
	})
	if err != nil {
		log.Fatal(err)
	}
	nearest, best := "", -1.0
	for i, note := range notes {
		product := 0.0
		for j, x := range embedded.Data[0].Embedding {
			product += x * embedded.Data[i+1].Embedding[j]
		}
		if product > best {
			nearest, best = note, product
		}
	}

	answer, err := client.Responses.New(ctx, responses.ResponseNewParams{
		Model: "gpt-5-mini", Instructions: openai.String("Answer from this note: " + nearest),
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(question)},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.OutputText())

	picture, err := client.Images.Generate(ctx, openai.ImageGenerateParams{
		Model: "gpt-image-1", Prompt: answer.OutputText(), Size: "1024x1024",
	})
	if err != nil {
		log.Fatal(err)
	}
	png, err := base64.StdEncoding.DecodeString(picture.Data[0].B64JSON)
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(os.Args[1], png, 0o644); err != nil {
		log.Fatal(err)
	}
}

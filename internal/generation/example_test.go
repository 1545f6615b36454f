package generation_test

import (
	"fmt"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/generation"
	"github.com/caddy-modelgate/modelgate/money"
)

// ExampleCheck decodes, checks and prices two bodies.
func ExampleCheck() {
	families, err := catalog.NewFamilies([]catalog.FamilyRow{{Family: "E", Models: []catalog.Pattern{"wan-*"}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	price := catalog.Price{Model: "video-wan-*", Second: []catalog.Variant{{Price: money.Unit / 10}}}

	for _, output := range []string{`{"audio":true,"fps":24}`, `{"duration":5}`} {
		request, ignored, refused := generation.DecodeVideo([]byte(`{"model":"video-wan-2.2","prompt":"a boat","output":` + output + `}`))
		if refused != nil {
			fmt.Println(refused)
			continue
		}
		checked, refused := generation.Check(families, request)
		if refused != nil {
			fmt.Println(refused)
			continue
		}
		quote, _ := checked.Quote(&price)
		fmt.Println(ignored, checked.Output.Resolution, checked.Output.AspectRatio, checked.Output.AudioGeneration)
		fmt.Println(quote.Hold, "=", quote.Rule)
	}
	// Output:
	// [output.fps] 720P 16:9 enabled
	// 0.80 = 1 video × 8 s × 0.10 per second
	// INVALID_PARAMETER (output.duration): `output.duration` must be 4, 8 or 12 for family E, not 5
}

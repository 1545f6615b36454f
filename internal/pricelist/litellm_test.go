package pricelist_test

import (
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/pricelist"
)

func TestLiteLLM(t *testing.T) {
	t.Parallel()
	list := readFile(t, "litellm.json", options("acme"))
	want := `price acme-1 {
	input 3.00
	output 15.00
	cache_read 0.30
	cache_write 3.75
	cache_write_1h 6.00
	reasoning 16.00
	audio_input 4.00
	audio_output 20.00
	image_input 5.00
	image_output 30.00
	request 0.001
	context 1000000
	max_output 64000
	above 200000 {
		input 6.00
		output 22.50
		cache_write_1h 12.00
		reasoning 22.50
	}
	call web_search 0.014
	geo us x1.1
	tier batch {
		input 1.50
		output 7.50
	}
	tier fast x6
	tier priority {
		input 6.00
		output 30.00
		cache_read 0.60
		reasoning 30.00
		above 200000 {
			input 12.00
		}
	}
}
price acme-2 {
	input 0.125
	output 1.00
	reasoning 1.00
	context 128000
	max_output 16384
}
price acme-draw {
	image 0.04
}
price acme-embed {
	input 0.10
	output 0.00
	context 8191
}
price acme-hear {
	per second 0.00012
}
price acme-hear-tokens {
	input 2.50
	output 10.00
	audio_input 6.00
	context 16000
	max_output 2000
}
price acme-paint {
	input 5.00
	output 10.00
	image_output 40.00
	context 32000
	max_output 8000
}
price acme-rank {
	request 0.002
}
price acme-short {
	input 1.00
	output 1.00
	context 200001
	max_output 1000
	above 200000 {
		input 2.00
	}
}
price acme-speak {
	per character 0.000015
}
`
	if got := blocks(list); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	same(t, "skipped", reasons(list), []string{
		`"1024-x-1024/acme-pixels": it is priced by the pixel`,
		`"acme-3": "acme-3" and "acme/acme-3" have different prices; choose one by its provider or its key`,
		`"acme-ambiguous": it has no max_input_tokens from 1 to 1000000000`,
		`"acme-factor": tier fast: the factor must be from 0.0001 to 1000, with at most four decimal places`,
		`"acme-live": its mode is "realtime"; imported are audio_speech, audio_transcription, chat, completion, embedding, image_generation, rerank, responses`,
		`"acme-old": it is deprecated`,
		`"acme-shorter": above 272000: it must be from 1 to less than context, which is 200000`,
		`"acme-toll": it has no price above 0 for input or for output`,
	})
	same(t, "ignored", list.Ignored, []string{
		"input_cost_per_image", "input_cost_per_token where it is 0", "output_cost_per_pixel", "output_cost_per_second where it is 0", "output_cost_per_token where it is 0", "output_cost_per_token_flex where it is 0", "provider_specific_entry.moon",
		"regional_processing_uplift_multiplier_eu",
	})
	if got := blocks(&pricelist.List{Prices: adapted(t, list.Caddyfile())}); got != want {
		t.Errorf("the adapter reads\n%s", got)
	}
}

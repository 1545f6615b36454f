package modelcall

import "slices"

// This file has the members of the routes of images and audio. The form of a route has its own table,
// in which a file is its size in bytes.

func imageCommon() []rule {
	return append(each(rule{}, "moderation", "output_format", "output_compression", "style", "response_format", "input_fidelity"),
		modelMember,
		streamMember,
		rule{Name: "prompt", Kinds: text, Required: true, Deciding: true},
		rule{Name: "background", Kinds: text}, // transparent; elsewhere a member that makes the vendor store the answer
		rule{Name: "n", Kinds: integer, Min: 1, Deciding: true, Slot: slotChoices},
		rule{Name: "size", Kinds: text, Deciding: true, Slot: slotSize},
		rule{Name: "quality", Kinds: text, Deciding: true, Slot: slotQuality},
		rule{Name: "svg", Note: noteUnknown, Members: tableWithState(rule{Name: "model", Deciding: true, Note: noteRouting})}, // names another model
		rule{Name: "partial_images", Kinds: integer, Min: 0, Max: maxPartialImages, Deciding: true, Slot: slotPartialImages},
	)
}

// maxPartialImages is more than any vendor allows.
const maxPartialImages = 100

// The members of POST /v1/images/generations and POST /v1/images/edits; see
// docs/reference/calls.md#images.
var (
	imageMembersOfRoute = bodyTable(imageCommon()...)
	editMembers         = bodyTable(slices.Concat(imageCommon(), media(noteMediaURL, imageMembers, "images"),
		media(noteMediaURL, mediaMembers, "image", "mask"))...)
	editFormMembers = bodyTable(append(imageCommon(),
		rule{Name: "image", Kinds: array, Elem: integer, Required: true, Deciding: true, Slot: slotFiles},
		rule{Name: "mask", Kinds: integer, Deciding: true, Slot: slotMask},
	)...)
)

// The files of forms, with the highest number of each.
var (
	imageFiles = map[string]int{"image": 16, "mask": 1}
	audioFiles = map[string]int{"file": 1}
)

// The members of POST /v1/audio/speech; see docs/reference/calls.md#speech.
var speechMembers = bodyTable(append(each(rule{}, "instructions", "language"),
	modelMember,
	streamMember,
	rule{Name: "input", Kinds: text, Required: true, Deciding: true, Slot: slotPrompt},
	rule{Name: "voice", Kinds: text | object, Deciding: true, Members: tableWithState(stateMember("id"))},
	rule{Name: "speed", Kinds: number},
	rule{Name: "response_format", Kinds: text, Deciding: true, Slot: slotFormat},
	rule{Name: "stream_format", Kinds: text, Deciding: true, Slot: slotStreamFormat},
)...)

// The members of POST /v1/audio/transcriptions and POST /v1/audio/translations; see
// docs/reference/calls.md#transcriptions.
var recordingMembers = bodyTable(append(each(rule{}, "language", "prompt", "include", "timestamp_granularities", "chunking_strategy", "hotwords", "keywords", "languages", "vad_filter", "known_speaker_names"),
	modelMember,
	rule{Name: "known_speaker_references", Kinds: array, Elem: text, Deciding: true, Note: noteAudioURLs},
	streamMember,
	rule{Name: "file", Kinds: integer, Required: true, Deciding: true, Slot: slotFiles},
	rule{Name: "response_format", Kinds: text, Deciding: true, Slot: slotFormat},
	rule{Name: "temperature", Kinds: number},
)...)

package generation

import (
	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
)

// Job returns c as a backend's job, without a token and a notify URL. It omits
// session_id and session_context, which identify the caller.
func (c *Checked) Job() backends.Job {
	job := backends.Job{
		Kind: backends.JobKind(c.Kind), Model: c.Model, Prompt: c.Prompt, NegativePrompt: c.NegativePrompt, EnhancePrompt: string(c.EnhancePrompt),
		GenerationMode: c.GenerationMode, SceneType: c.SceneType, InputRegion: c.InputRegion, Seed: c.Seed, ExtInfo: c.ExtInfo, Fields: c.Fields,
		Source: c.Source,
	}
	if c.Passing() {
		job.Kind = backends.Generations
	}
	for _, a := range append(aliasesOf(c.Fields), aliasesWithin("ext_info", c.ExtInfo)...) {
		if of := a.quantity(); !of.opaque || a.readable() {
			job.Adopted = append(job.Adopted, a.path)
		}
	}
	for _, in := range c.Inputs {
		job.Inputs = append(job.Inputs, backends.Input{
			URL: in.URL, Category: in.Category, ReferenceType: in.ReferenceType, ObjectID: in.ObjectID, VoiceID: in.VoiceID,
			KeepOriginalSound: string(in.KeepOriginalSound), Usage: in.Usage, Text: in.Text,
		})
	}
	for _, in := range c.Subjects {
		job.SubjectInputs = append(job.SubjectInputs, backends.SubjectInput{URL: in.URL, ID: in.ID, Name: in.Name})
	}
	out := c.Output
	job.Output = backends.Output{
		Resolution: out.Resolution, AspectRatio: out.AspectRatio, AudioGeneration: string(out.AudioGeneration), EnhanceSwitch: string(out.EnhanceSwitch),
		FrameInterpolate: string(out.FrameInterpolate), MediaName: out.MediaName, ClassID: out.ClassID, Format: out.Format,
		Count: orZero(out.Count), Width: orZero(out.Width), Height: orZero(out.Height), FPS: orZero(out.FPS),
	}
	if out.Duration != nil {
		job.Output.Duration = float64(*out.Duration) / float64(catalog.Second)
	}
	return job
}

func orZero(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

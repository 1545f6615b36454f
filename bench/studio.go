package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"
)

// The generation service of this benchmark, which the backend is, too.
const (
	studioName  = "studio"
	studioKey   = "sk-00000000000000000000000000000000000000000000studio"
	videoModel  = "video-bench-1"
	videoPrompt = "a cat that goes for a walk through a town in the rain, in the colours of an old film"
	videoURL    = "https://files.example.com/results/01XFDUDYJgAACzvnptvVoYEL.mp4"

	// endless is a prompt whose job is never finished.
	endless = "the same, without an end"
)

// studio is a service of the platform interface. A job is complete as soon as it
// was asked for the first time, which is the worst moment: nobody hears of it
// before the whole of a poll interval has passed.
type studio struct {
	mu   sync.Mutex
	jobs map[string]*work
}

// work is a job of a studio. Its times are Unix nanoseconds; zero is not yet.
type work struct {
	Completed int64 `json:"completed"`
	Told      int64 `json:"told"` // when somebody asked who heard of it

	endless bool
}

func newStudio() *studio { return &studio{jobs: make(map[string]*work)} }

// Where the studio tells of the times of a job, for the benchmark itself.
const workPath = "/studio/"

// routes adds what the studio serves. Its ids of jobs are the tokens that tasks
// have there.
func (s *studio) routes(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1/platform/video", s.take)
	mux.HandleFunc("GET /v1/platform/tasks/{id}", s.show)
	mux.HandleFunc("GET "+workPath+"{id}", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		answerWith(w, s.jobs[r.PathValue("id")])
	})
}

func (s *studio) take(w http.ResponseWriter, r *http.Request) {
	var job struct {
		Prompt    string `json:"prompt"`
		SessionID string `json:"session_id"`
	}
	if err := json.NewDecoder(r.Body).Decode(&job); err != nil || job.SessionID == "" {
		http.Error(w, "that is no submission", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	if s.jobs[job.SessionID] == nil {
		s.jobs[job.SessionID] = &work{endless: job.Prompt == endless}
	}
	s.mu.Unlock()
	answerWith(w, map[string]any{"task_id": job.SessionID, "status": "queued"})
}

func (s *studio) show(w http.ResponseWriter, r *http.Request) {
	now := time.Now().UnixNano()
	id := r.PathValue("id")
	s.mu.Lock()
	defer s.mu.Unlock()
	job := s.jobs[id]
	switch {
	case job == nil:
		http.Error(w, `{"code":"TASK_NOT_FOUND","message":"there is no such task"}`, http.StatusNotFound)
		return
	case job.Completed == 0:
		if !job.endless {
			job.Completed = now
		}
		answerWith(w, map[string]any{"task_id": id, "object": "video_task", "model": videoModel, "status": "in_progress", "progress": "50%", "created_at": now / 1e9})
		return
	case job.Told == 0:
		job.Told = now
	}
	answerWith(w, map[string]any{
		"task_id": id, "object": "video_task", "model": videoModel, "status": "success", "progress": "100%",
		"created_at": now / 1e9, "completed_at": now / 1e9,
		"result": map[string]any{"url": videoURL, "urls": []string{videoURL}, "type": "video"},
	})
}

func answerWith(w http.ResponseWriter, what any) {
	w.Header()["Content-Type"] = []string{"application/json"}
	_, _ = w.Write(marshal(what))
}

// isStudio tells whether a path is the studio's.
func isStudio(path string) bool {
	return strings.HasPrefix(path, "/v1/platform/") || strings.HasPrefix(path, workPath)
}

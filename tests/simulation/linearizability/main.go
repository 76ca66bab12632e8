// Checks histories of a partition, and of consumers' positions, with porcupine: is there an order of all operations that
// agrees with what each client was told, and when? Each line of standard input is a history as JSON, each line of
// standard output its result.
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

const patience = 20 * time.Second

type entry struct {
	Offset  int64  `json:"offset"`
	Payload string `json:"payload"`
}

// An append or a transaction has the entries that it brought; a read those that it found from First up to End.
type operation struct {
	Kind    string  `json:"kind"`
	Call    int64   `json:"call"`
	Return  int64   `json:"return"`
	Entries []entry `json:"entries"`
	First   int64   `json:"first"`
	End     int64   `json:"end"`
	// Whole is set where nothing is held back from readers: all that was appended lies before End.
	Whole bool `json:"whole"`
}

// A store, a fetch or a crash of the broker, in the life of one consumer's position; Value -1 is none.
type positionCall struct {
	Kind      string `json:"kind"`
	Consumer  string `json:"consumer"`
	Call      int64  `json:"call"`
	Return    int64  `json:"return"`
	Value     int64  `json:"value"`
	Confirmed bool   `json:"confirmed"`
}

type history struct {
	Operations []operation    `json:"operations"`
	Positions  []positionCall `json:"positions"`
}

// A log as its readers see it: entries by ascending offset, and the offset behind all that was ever appended.
type log struct {
	entries []entry
	next    int64
}

func step(state, input, _ interface{}) (bool, interface{}) {
	before, asked := state.(log), input.(operation)
	switch asked.Kind {
	case "append":
		return appended(before, asked.Entries)
	case "transaction":
		return committed(before, asked.Entries)
	default:
		return isRead(before, asked), before
	}
}

// Appends take offsets in the order in which they take effect.
func appended(before log, entries []entry) (bool, log) {
	next := before.next
	for _, one := range entries {
		if one.Offset < next {
			return false, before
		}
		next = one.Offset + 1
	}
	return true, log{append(slices.Clone(before.entries), entries...), next}
}

// A transaction shows all of its entries at once; they took their offsets before.
func committed(before log, entries []entry) (bool, log) {
	after := log{slices.Clone(before.entries), before.next}
	for _, one := range entries {
		at, isTaken := slices.BinarySearchFunc(after.entries, one.Offset, func(e entry, offset int64) int {
			return int(e.Offset - offset)
		})
		if isTaken {
			return false, before
		}
		after.entries = slices.Insert(after.entries, at, one)
		after.next = max(after.next, one.Offset+1)
	}
	return true, after
}

// A read finds exactly what there is from its first offset up to its end.
func isRead(before log, asked operation) bool {
	if asked.Whole && asked.End < before.next {
		return false
	}
	expected := []entry{}
	for _, one := range before.entries {
		if asked.First <= one.Offset && one.Offset < asked.End {
			expected = append(expected, one)
		}
	}
	return slices.Equal(expected, asked.Entries)
}

// All that a start after a crash may find of a position, oldest first: what was confirmed last, and what was stored
// after it. The last one is what a fetch finds now.
type position []int64

func stepPosition(state, input, _ interface{}) []interface{} {
	before, asked := state.(position), input.(positionCall)
	switch asked.Kind {
	case "store":
		if asked.Confirmed {
			return []interface{}{position{asked.Value}}
		}
		return []interface{}{append(slices.Clone(before), asked.Value)}
	case "crash":
		after := []interface{}{}
		for count := 1; count <= len(before); count++ {
			after = append(after, before[:count:count])
		}
		return after
	default:
		if before[len(before)-1] != asked.Value {
			return nil
		}
		return []interface{}{before}
	}
}

func byConsumer(all []porcupine.Operation) [][]porcupine.Operation {
	found := map[string][]porcupine.Operation{}
	for _, one := range all {
		consumer := one.Input.(positionCall).Consumer
		found[consumer] = append(found[consumer], one)
	}
	parts := make([][]porcupine.Operation, 0, len(found))
	for _, one := range found {
		parts = append(parts, one)
	}
	return parts
}

func main() {
	model := porcupine.Model{
		Init: func() interface{} { return log{} },
		Step: step,
		Equal: func(one, other interface{}) bool {
			a, b := one.(log), other.(log)
			return a.next == b.next && slices.Equal(a.entries, b.entries)
		},
	}
	register := porcupine.NondeterministicModel{
		Partition: byConsumer,
		Init:      func() []interface{} { return []interface{}{position{-1}} },
		Step:      stepPosition,
		Equal:     func(one, other interface{}) bool { return slices.Equal(one.(position), other.(position)) },
	}
	positions := register.ToModel()
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	answers := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked history
		if err := json.Unmarshal(line, &asked); err != nil {
			panic(err)
		}
		operations := make([]porcupine.Operation, len(asked.Operations))
		for at, one := range asked.Operations {
			operations[at] = porcupine.Operation{Input: one, Call: one.Call, Return: one.Return}
		}
		calls := make([]porcupine.Operation, len(asked.Positions))
		for at, one := range asked.Positions {
			calls[at] = porcupine.Operation{Input: one, Call: one.Call, Return: one.Return}
		}
		result := porcupine.CheckOperationsTimeout(model, operations, patience)
		if result == porcupine.Ok {
			result = porcupine.CheckOperationsTimeout(positions, calls, patience)
		}
		if err := answers.Encode(map[string]string{"result": string(result)}); err != nil {
			panic(err)
		}
	}
}

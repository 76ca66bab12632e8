package main

import (
	"context"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/sr"
)

func check(err error) {
	if err != nil {
		fmt.Println("FAILED", err)
		os.Exit(1)
	}
}

func main() {
	ctx := context.Background()
	client, err := sr.NewClient(sr.URLs(os.Args[1]))
	check(err)
	text := `{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}`
	made, err := client.CreateSchema(ctx, "go-value", sr.Schema{Schema: text})
	check(err)
	fmt.Println("created", made.Subject, made.Version, made.Schema.Schema == text)
	found, err := client.SchemaByID(ctx, made.ID)
	check(err)
	fmt.Println("by id", found.Schema == text)
	looked, err := client.LookupSchema(ctx, "go-value", sr.Schema{Schema: text})
	check(err)
	fmt.Println("lookup", looked.ID == made.ID)
	proto, err := client.CreateSchema(ctx, "go-proto-value", sr.Schema{Schema: "syntax = \"proto3\"; message M { int64 id = 1; }", Type: sr.TypeProtobuf})
	check(err)
	fmt.Println("protobuf", proto.Type, proto.Version)
	_, err = client.CreateSchema(ctx, "go-json-value", sr.Schema{Schema: `{"type":"object"}`, Type: sr.TypeJSON})
	check(err)
	subjects, err := client.Subjects(ctx)
	check(err)
	fmt.Println("subjects", subjects)
	check(client.SetCompatibility(ctx, sr.SetCompatibility{Level: sr.CompatFull}, "go-value")[0].Err)
	for _, one := range client.Compatibility(ctx, "go-value") {
		check(one.Err)
		fmt.Println("level", one.Level)
	}
	result, err := client.CheckCompatibility(sr.WithParams(ctx, sr.Verbose), "go-value", -1, sr.Schema{Schema: `"int"`})
	check(err)
	fmt.Println("compatible", result.Is, len(result.Messages) > 0)
	_, err = client.SchemaByID(ctx, 99999)
	fmt.Println("missing", err)
	types, err := client.SupportedTypes(ctx)
	check(err)
	fmt.Println("types", types)
	for _, one := range client.Mode(ctx) {
		fmt.Println("mode", one.Mode, one.Err)
	}
	versions, err := client.SubjectVersions(ctx, "go-value")
	check(err)
	fmt.Println("versions", versions)
	uses, err := client.SchemaUsagesByID(ctx, made.ID)
	check(err)
	fmt.Println("uses", len(uses))
	all, err := client.AllSchemas(ctx)
	check(err)
	fmt.Println("all", len(all))
	deleted, err := client.DeleteSubject(ctx, "go-value", sr.SoftDelete)
	check(err)
	deleted, err = client.DeleteSubject(ctx, "go-value", sr.HardDelete)
	check(err)
	fmt.Println("deleted", deleted)
	var serde sr.Serde
	serde.Register(proto.ID, struct{}{}, sr.Index(0), sr.EncodeFn(func(any) ([]byte, error) { return []byte{8, 7}, nil }))
	encoded, err := serde.Encode(struct{}{})
	check(err)
	fmt.Println("framed", encoded[0], encoded[5:])
}

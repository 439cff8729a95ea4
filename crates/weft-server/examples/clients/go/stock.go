// Takes lamps from the stock: go run . [PORT], with go-redis.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"
)

func main() {
	port := "6380"
	if len(os.Args) > 1 {
		port = os.Args[1]
	}
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port})
	defer client.Close()

	// A procedure is called by its name, or as a function.
	taken, err := client.Do(ctx, "TAKE", 7).Slice()
	if err != nil {
		log.Fatal(err)
	}
	name, left := taken[0].(string), taken[1].(int64)
	fmt.Printf("one %s taken, %d left\n", name, left)
	again, err := client.FCall(ctx, "take", nil, 7, 2).Slice()
	if err != nil || again[1].(int64) != left-2 {
		log.Fatalf("FCALL take: %v, %v", again, err)
	}
	if _, err := client.Do(ctx, "TAKE", 7, 1_000_000).Result(); !errors.Is(err, redis.Nil) {
		log.Fatalf("more than there are: %v", err)
	}
	if _, err := client.Do(ctx, "TAKE", "seven").Result(); err == nil || !strings.Contains(err.Error(), "must be an integer") {
		log.Fatalf("a wrong argument: %v", err)
	}
}

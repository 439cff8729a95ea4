// A handful of commands by go-redis: go run . PORT
package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func check(is bool, what string, found ...any) {
	if !is {
		panic(fmt.Sprint(what, ": ", found))
	}
}

func must[T any](value T, err error) T {
	check(err == nil, "an error", err)
	return value
}

func run(address string, protocol int) {
	client := redis.NewClient(&redis.Options{Addr: address, Protocol: protocol})
	defer client.Close()
	must(client.FlushAll(ctx).Result())
	must(client.Set(ctx, "greeting", "hello", time.Minute).Result())
	check(must(client.Get(ctx, "greeting").Result()) == "hello", "GET")
	_, err := client.Get(ctx, "absent").Result()
	check(errors.Is(err, redis.Nil), "GET of an absent key", err)
	must(client.HSet(ctx, "user", "name", "Ada", "born", 1815).Result())
	user := must(client.HGetAll(ctx, "user").Result())
	check(reflect.DeepEqual(user, map[string]string{"name": "Ada", "born": "1815"}), "HGETALL", user)
	must(client.ZAdd(ctx, "board", redis.Z{Score: 2, Member: "b"}, redis.Z{Score: 1.5, Member: "a"}).Result())
	board := must(client.ZRangeWithScores(ctx, "board", 0, -1).Result())
	check(len(board) == 2 && board[0] == redis.Z{Score: 1.5, Member: "a"}, "ZRANGE", board)

	// Many clients change one key by WATCH.
	var group sync.WaitGroup
	for number := 0; number < 8; number++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for changes := 0; changes < 20; {
				err := client.Watch(ctx, func(tx *redis.Tx) error {
					n, err := tx.Get(ctx, "n").Int()
					if err != nil && !errors.Is(err, redis.Nil) {
						return err
					}
					_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
						pipe.Set(ctx, "n", n+1, 0)
						return nil
					})
					return err
				}, "n")
				if err == nil {
					changes++
				} else {
					check(errors.Is(err, redis.TxFailedErr), "WATCH", err)
				}
			}
		}()
	}
	group.Wait()
	check(must(client.Get(ctx, "n").Int()) == 160, "no change is lost")

	must(client.XGroupCreateMkStream(ctx, "events", "readers", "0").Result())
	id := must(client.XAdd(ctx, &redis.XAddArgs{Stream: "events", Values: []string{"kind", "made"}}).Result())
	read := must(client.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: "readers", Consumer: "one", Streams: []string{"events", ">"},
	}).Result())
	check(read[0].Messages[0].ID == id, "XREADGROUP", read)
	check(must(client.XAck(ctx, "events", "readers", id).Result()) == 1, "XACK")

	must(client.GeoAdd(ctx, "Sicily",
		&redis.GeoLocation{Name: "Palermo", Longitude: 13.361389, Latitude: 38.115556},
		&redis.GeoLocation{Name: "Catania", Longitude: 15.087269, Latitude: 37.502669}).Result())
	distance := must(client.GeoDist(ctx, "Sicily", "Palermo", "Catania", "km").Result())
	check(math.Abs(distance-166.2742) < 0.001, "GEODIST", distance)
	found := must(client.GeoSearchLocation(ctx, "Sicily", &redis.GeoSearchLocationQuery{
		GeoSearchQuery: redis.GeoSearchQuery{Longitude: 15, Latitude: 37, Radius: 200, RadiusUnit: "km", Sort: "ASC"},
		WithCoord:      true, WithDist: true, WithHash: true,
	}).Result())
	check(len(found) == 2 && found[0].Name == "Catania" && math.Abs(found[0].Dist-56.4413) < 0.001, "GEOSEARCH", found)
	must(client.PFAdd(ctx, "visitors", "a", "b", "a").Result())
	check(must(client.PFCount(ctx, "visitors").Result()) == 2, "PFCOUNT")
	must(client.RPush(ctx, "numbers", 3, 1, 2).Result())
	sorted := must(client.Sort(ctx, "numbers", &redis.Sort{Order: "DESC"}).Result())
	check(reflect.DeepEqual(sorted, []string{"3", "2", "1"}), "SORT", sorted)
	must(client.MSet(ctx, "one", "ohmytext", "other", "mynewtext").Result())
	common := must(client.LCS(ctx, &redis.LCSQuery{Key1: "one", Key2: "other"}).Result())
	check(common.MatchString == "mytext", "LCS", common)
	script := redis.NewScript("return redis.call('INCRBY', KEYS[1], ARGV[1])")
	check(must(script.Run(ctx, client, []string{"m"}, 3).Int()) == 3, "a script")

	subscriber := client.Subscribe(ctx, "news")
	defer subscriber.Close()
	must(subscriber.Receive(ctx))
	must(client.Publish(ctx, "news", "x").Result())
	check((<-subscriber.Channel()).Payload == "x", "a message")
	fmt.Printf("go-redis, RESP%d\n", protocol)
}

func main() {
	for _, protocol := range []int{2, 3} {
		run("127.0.0.1:"+os.Args[1], protocol)
	}
}

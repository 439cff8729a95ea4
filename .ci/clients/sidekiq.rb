# Jobs of Sidekiq 6, whose queue the server keeps: ruby sidekiq.rb PORT

require "sidekiq"
require "sidekiq/api"
require "sidekiq/launcher"

server = { url: "redis://127.0.0.1:#{ARGV[0]}/2" }
Sidekiq.configure_client { |config| config.redis = server }
Sidekiq.logger.level = Logger::ERROR
Redis.silence_deprecations = true
RESULTS = Queue.new
FAILED = Queue.new

class Add
  include Sidekiq::Worker
  sidekiq_options retry: 1
  sidekiq_retry_in { 1 }

  def perform(one, other)
    if one == 5 && FAILED.empty?
      FAILED << one
      raise "once"
    end
    RESULTS << one + other
  end
end

Sidekiq.redis(&:flushdb)
Add.perform_async(1, 10)
Sidekiq::Client.push_bulk("class" => Add, "args" => [[2, 10], [3, 10], [5, 10]])
Add.perform_in(1, 4, 10)
raise "not queued" unless Sidekiq::Queue.new.size == 4 && Sidekiq::ScheduledSet.new.size == 1

options = Sidekiq.options.merge(queues: ["default"], concurrency: 2, poll_interval_average: 1)
launcher = Sidekiq::Launcher.new(options)
launcher.run
found = Array.new(5) { RESULTS.pop }
launcher.stop
raise "wrong results: #{found}" unless found.sort == [11, 12, 13, 14, 15]
puts "Sidekiq #{Sidekiq::VERSION}: 5 jobs"
